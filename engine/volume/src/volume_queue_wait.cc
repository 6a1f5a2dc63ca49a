/// How a volume's queue posts the parts of long operations, and collects completions.

#include <algorithm>
#include <utility>

#include <remora/assert.h>

#include "volume_core.h"
#include "volume_lane_tag.h"
#include "volume_queue_core.h"

namespace remora::volume::detail {

namespace {

using Clock = std::chrono::steady_clock;

/// How long a caller polls several lanes before it sleeps.
constexpr std::chrono::microseconds kSpin{50};

Error expired(VolumeOperation kind) noexcept {
  const auto error = [](Operation operation) {
    return Error{Code::kTimedOut, operation}.with_reason(Reason::kExpired);
  };
  switch (kind) {
    case VolumeOperation::kRead: return error("read");
    case VolumeOperation::kWrite: return error("write");
    case VolumeOperation::kZeroes: return error("write_zeroes");
    case VolumeOperation::kFlush: return error("flush_visible");
    case VolumeOperation::kAtomic: break;  // has no parts
  }
  return error("atomic");
}

}  // namespace

/// Gives the next part of an operation to its lane. False: the lane has no room for parts.
bool VolumeQueueCore::post_part(Entry& entry) noexcept {
  if (entry.kind == VolumeOperation::kFlush) return post_flush(entry);
  const std::uint64_t posted = entry.posted;
  const Place place = map_.place_of(entry.offset_bytes + posted);
  const std::uint64_t length_bytes = std::min(place.left_bytes, entry.length_bytes - posted);
  VolumeLane* const lane = lanes_.select(place.group);
  if (lane == nullptr) {
    fail(entry, volume_.why_closed(place.group, ByteOffset{entry.offset_bytes}, entry.length_bytes),
         place.group);
    return true;
  }
  if (lane->parts_count == VolumeLanes::kMaxParts) return false;
  const ByteOffset at{place.offset_bytes};
  const std::uint64_t tag = VolumeLaneTag::of_part(entry.index, place.group);
  Ticket ticket;
  if (entry.kind == VolumeOperation::kRead)
    ticket = lane->queue.read(at, entry.into.part(posted, length_bytes), tag);
  else if (entry.kind == VolumeOperation::kWrite)
    ticket = lane->queue.write(at, entry.from.part(posted, length_bytes), tag);
  else
    ticket = lane->queue.write_zeroes(at, length_bytes, tag);
  REMORA_ASSERT(ticket, "a lane has room for kMaxParts parts");
  ++lane->taken_count;
  ++lane->parts_count;
  ++entry.parts_left;
  entry.posted += length_bytes;
  entry.all_posted = entry.posted == entry.length_bytes;
  return true;
}

/// A flush has a part for each lane.
bool VolumeQueueCore::post_flush(Entry& entry) noexcept {
  if (entry.posted == lanes_.all().size()) {
    entry.all_posted = true;  // there is no lane
    return true;
  }
  VolumeLane& lane = lanes_.all()[entry.posted];
  if (lane.parts_count == VolumeLanes::kMaxParts) return false;
  const Ticket ticket = lane.queue.flush_visible(VolumeLaneTag::of_part(entry.index, lane.group));
  REMORA_ASSERT(ticket, "a lane has room for kMaxParts parts");
  ++lane.taken_count;
  ++lane.parts_count;
  ++entry.parts_left;
  entry.all_posted = ++entry.posted == lanes_.all().size();
  return true;
}

/// Posts parts of long operations, in the order of the operations, as far as there is room.
void VolumeQueueCore::post_held() noexcept {
  if (held_.first == nullptr) [[likely]]
    return;
  const auto now = Clock::now();
  bool room = true;
  while (room && held_.first != nullptr) {
    Entry& entry = *held_.first;
    if (now >= entry.until && !entry.all_posted && !entry.failed)
      fail(entry, expired(entry.kind), lanes_.all().empty() ? 0 : lanes_.all().front().group);
    while (room && !entry.all_posted && !entry.failed) room = post_part(entry);
    if (!room) break;
    held_.take_first();
    // What was not posted of a failed operation is given up.
    entry.all_posted = true;
    if (entry.parts_left != 0) continue;
    ended_.append(entry);
    --in_flight_;
  }
  submit_lanes();
}

/// Of several failures of an operation the first is kept, but one whose effect is unknown hides the
/// others: these say that nothing happens any more.
void VolumeQueueCore::fail(Entry& entry, const Error& error, std::uint32_t group) noexcept {
  const Error named =
      volume_.named(error, group, ByteOffset{entry.offset_bytes}, entry.length_bytes);
  Error& kept = entry_errors_[entry.index];
  if (std::exchange(entry.failed, true) &&
      (error.code() != Code::kIndeterminate || kept.code() == Code::kIndeterminate))
    return;
  kept = named;
}

/// Ends a part, or an operation of one part that failed.
void VolumeQueueCore::end_part(VolumeLane& lane, const Completion& completion) noexcept {
  const std::uint64_t tag = completion.tag();
  const bool part = VolumeLaneTag::is_part(tag);
  Entry& entry = entries_[VolumeLaneTag::index(tag)];
  REMORA_ASSERT(entry.parts_left != 0, "a part ends once");
  if (!completion.ok()) {
    const std::uint32_t group =
        part ? VolumeLaneTag::group(tag) : map_.place_of(entry.offset_bytes).group;
    fail(entry, completion.error(), group);
  }
  if (part) {
    REMORA_ASSERT(lane.parts_count != 0, "a lane counts the parts that it has");
    --lane.parts_count;
  }
  if (--entry.parts_left == 0 && entry.all_posted) ended_.append(entry);
}

namespace {

/// Not inline, so that collect() keeps its registers.
[[gnu::cold, gnu::noinline]] bool any_failed(const Completions& found) noexcept {
  return !std::all_of(found.begin(), found.end(),
                      [](const Completion& completion) { return completion.ok(); });
}

}  // namespace

/// Returns the number of completions in `found`.
std::size_t VolumeQueueCore::collect(VolumeLane& lane, const Completions& found) noexcept {
  const std::size_t before = ended_count();
  // In local variables, which no store through a pointer changes.
  Entry* const table = entries_.data();
  VolumeCompletion* const first = ready_.data() + ready_count_;
  VolumeCompletion* next = first;
  Entry* next_free = free_;
  const auto hand_out = [&](Entry& entry, std::uint64_t old_value) {
    *next++ = VolumeCompletion{entry.tag, old_value, nullptr};
    entry.next = next_free;
    next_free = &entry;
  };
  for (const Completion& completion : found) {
    const std::uint64_t tag = completion.tag();
    if (completion.ok() && VolumeLaneTag::is_transfer(tag)) [[likely]]
      hand_out(table[tag], 0);
    else if (completion.ok() && !VolumeLaneTag::is_part(tag))
      hand_out(table[VolumeLaneTag::index(tag)], completion.old_value());
    else
      end_part(lane, completion);
  }
  free_ = next_free;
  const auto handed_out = static_cast<std::size_t>(next - first);
  room_.left += handed_out;
  ready_count_ += handed_out;
  // An operation that the lane has refused when it took it ends before submit(). Which of the
  // failed ones these are is not known: from here on all that was taken counts as in flight.
  if (lane.taken_count != 0 && any_failed(found)) [[unlikely]]
    submit_lanes();
  else
    in_flight_ -= ended_count() - before;
  lanes_.remove_in_flight(lane, found.size());
  return found.size();
}

/// Collects from each lane. Blocks for those completions without which there cannot be `goal` ended
/// operations. Returns their number.
std::size_t VolumeQueueCore::collect_all(std::size_t goal) noexcept {
  std::size_t found = 0;
  for (VolumeLane& lane : lanes_.all()) {
    if (lane.in_flight_count == 0) continue;
    const std::size_t others = lanes_.in_flight_count() - lane.in_flight_count;
    const std::size_t needed = goal > ended_count() ? goal - ended_count() : 0;
    // Parts that are not posted yet may end an operation, too.
    const std::size_t here = needed > others && held_.first == nullptr ? needed - others : 0;
    found += collect(lane, lane.queue.wait(here));
  }
  return found;
}

VolumeCompletions VolumeQueueCore::wait(std::size_t at_least) noexcept {
  const Call call{*this};
  if (!call) [[unlikely]]
    return {};
  const std::size_t goal = std::min(at_least, ended_.count + in_flight_);
  collect_all(goal);
  post_held();
  while (ended_count() < goal) {
    wait_for_any(goal);
    post_held();
  }
  return hand_out_all();
}

/// Blocks until a part has ended.
void VolumeQueueCore::wait_for_any(std::size_t goal) noexcept {
  VolumeLane* busy = nullptr;
  std::size_t busy_count = 0;
  for (VolumeLane& lane : lanes_.all()) {
    if (lane.in_flight_count == 0) continue;
    busy = &lane;
    ++busy_count;
  }
  REMORA_ASSERT(busy_count != 0, "an operation in flight has a part in flight");
  if (busy_count > 1) {
    const auto until = Clock::now() + kSpin;
    do {
      if (collect_all(goal) != 0) return;
    } while (Clock::now() < until);
    if (sleep()) return;
  }
  // With one lane, or without descriptors, which would tell of all lanes.
  collect(*busy, busy->queue.wait(1));
}

/// Sleeps until a lane has an event. False: there are no descriptors for that.
bool VolumeQueueCore::sleep() noexcept {
  const auto events = lanes_.events();
  if (!events) return false;
  (*events)->take_notice();
  std::size_t found = 0;
  for (VolumeLane& lane : lanes_.all()) found += collect(lane, lane.queue.progress());
  if (found == 0) (*events)->wait(next_deadline());
  return true;
}

VolumeCompletions VolumeQueueCore::progress() noexcept {
  const Call call{*this};
  if (!call) return {};
  if (EventSet* const events = lanes_.events_or_null()) events->take_notice();
  for (VolumeLane& lane : lanes_.all()) collect(lane, lane.queue.progress());
  post_held();
  return hand_out_all();
}

VolumeCompletions VolumeQueueCore::hand_out_all() noexcept {
  while (ended_.first != nullptr) {
    Entry& entry = ended_.take_first();
    const Error* error = nullptr;
    if (entry.failed) {
      ready_errors_[ready_count_] = entry_errors_[entry.index];
      error = &ready_errors_[ready_count_];
    }
    REMORA_ASSERT(ready_count_ < ready_.size(), "the completions of a call fit");
    ready_[ready_count_++] = VolumeCompletion{entry.tag, 0, error};
    release(entry);
  }
  return {ready_.data(), std::exchange(ready_count_, 0)};
}

std::chrono::steady_clock::time_point VolumeQueueCore::next_deadline() const noexcept {
  auto earliest = lanes_.next_deadline();
  if (held_.first != nullptr) earliest = std::min(earliest, held_.first->until);
  return earliest;
}

}  // namespace remora::volume::detail
