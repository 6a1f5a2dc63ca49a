/// How a volume's queue takes and submits operations. volume_queue_wait.cc has their parts and
/// completions.

#include "volume_queue_core.h"

#include <new>
#include <utility>

#include <remora/assert.h>

#include "mirror_queue.h"
#include "volume_core.h"

namespace remora::volume::detail {

Result<std::unique_ptr<VolumeQueueCore>> VolumeQueueCore::create(VolumeCore& volume,
                                                                 const QueueOptions& options,
                                                                 std::shared_ptr<VolumeCore> kept) {
  constexpr std::size_t kMaxDepth = kMaxQueueDepth - VolumeLanes::kMaxParts;
  if (options.depth == 0 || options.depth > kMaxDepth)
    return Error{Code::kInvalidArgument, "queue"}.with_subject("depth").with_limit(options.depth,
                                                                                   kMaxDepth);
  const std::chrono::nanoseconds deadline =
      options.deadline.count() > 0 ? options.deadline : volume.options().operation_deadline;
  try {
    auto lanes = VolumeLanes::create(volume, options.depth, deadline);
    if (!lanes) return lanes.error();
    return std::make_unique<VolumeQueueCore>(volume, std::move(kept), std::move(*lanes),
                                             options.depth, deadline);
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "queue"};
  }
}

VolumeQueueCore::VolumeQueueCore(VolumeCore& volume, std::shared_ptr<VolumeCore> kept,
                                 VolumeLanes lanes, std::size_t depth,
                                 std::chrono::nanoseconds deadline)
    : kept_{std::move(kept)},
      volume_{volume},
      map_{volume.map()},
      deadline_{deadline},
      room_{.depth = depth, .left = 0},
      entries_(depth),
      entry_errors_(depth, Error{Code::kInternal}),
      ready_(depth),
      ready_errors_(depth, Error{Code::kInternal}),
      lanes_{std::move(lanes)} {
  for (std::size_t i = 0; i < depth; ++i) {
    entries_[i].index = i;
    release(entries_[i]);
  }
}

/// Call it only while there is room.
[[gnu::always_inline]] inline VolumeQueueEntry& VolumeQueueCore::acquire(
    VolumeOperation kind, ByteOffset at, std::uint64_t length_bytes, std::uint64_t tag) noexcept {
  Entry& entry = *free_;
  free_ = entry.next;
  --room_.left;
  entry.tag = tag;
  entry.offset_bytes = at.bytes;
  entry.length_bytes = length_bytes;
  entry.parts_left = 1;
  entry.kind = kind;
  entry.failed = false;
  entry.several = false;
  entry.all_posted = true;
  return entry;
}

/// Gives an operation of one part to its lane.
template <typename Take>
[[gnu::always_inline]] inline bool VolumeQueueCore::take_whole(Entry& entry, const Place& place,
                                                               const Take& take) noexcept {
  VolumeLane* const lane = lanes_.select(place.group);
  if (lane == nullptr) [[unlikely]]
    return refuse(
        entry, volume_.why_closed(place.group, ByteOffset{entry.offset_bytes}, entry.length_bytes));
  [[maybe_unused]] const Ticket ticket =
      take(lane->queue, ByteOffset{place.offset_bytes}, entry.index);
  REMORA_ASSERT_HOT(ticket, "a lane has room for all operations of one part");
  ++lane->taken_count;
  return true;
}

[[gnu::always_inline]] inline bool VolumeQueueCore::take_read(ByteOffset from, const Target& into,
                                                              std::uint64_t tag) noexcept {
  if (free_ == nullptr) return false;
  const std::uint64_t length_bytes = into.bytes().size();
  Entry& entry = acquire(VolumeOperation::kRead, from, length_bytes, tag);
  if (!map_.holds(from.bytes, length_bytes)) [[unlikely]] {
    if (length_bytes != 0) return refuse(entry, volume_.outside("read", from, length_bytes));
    return refuse(entry, volume_.refuse_empty(into));
  }
  const Place place = map_.place_of(from.bytes);
  if (length_bytes > place.left_bytes) [[unlikely]] {
    if (into.bytes().data() == nullptr)
      return refuse(entry, Error{Code::kInvalidArgument, "read"}.with_reason(Reason::kNullPointer));
    entry.into = into;
    return take_in_parts(entry);
  }
  return take_whole(entry, place, [&](Queue& queue, ByteOffset at, std::uint64_t lane_tag) {
    return queue.read(at, into, lane_tag);
  });
}

[[gnu::always_inline]] inline bool VolumeQueueCore::take_write(ByteOffset to, const Source& from,
                                                               std::uint64_t tag) noexcept {
  if (free_ == nullptr) return false;
  const std::uint64_t length_bytes = from.bytes().size();
  Entry& entry = acquire(VolumeOperation::kWrite, to, length_bytes, tag);
  if (!map_.holds(to.bytes, length_bytes)) [[unlikely]] {
    if (length_bytes != 0) return refuse(entry, volume_.outside("write", to, length_bytes));
    return refuse(entry, volume_.refuse_empty(from));
  }
  const Place place = map_.place_of(to.bytes);
  if (length_bytes > place.left_bytes) [[unlikely]] {
    if (from.bytes().data() == nullptr)
      return refuse(entry,
                    Error{Code::kInvalidArgument, "write"}.with_reason(Reason::kNullPointer));
    entry.from = from;
    return take_in_parts(entry);
  }
  return take_whole(entry, place, [&](Queue& queue, ByteOffset at, std::uint64_t lane_tag) {
    return queue.write(at, from, lane_tag);
  });
}

bool VolumeQueueCore::read(ByteOffset from, const Target& into, std::uint64_t tag) noexcept {
  return take_read(from, into, tag);
}

bool VolumeQueueCore::write(ByteOffset to, const Source& from, std::uint64_t tag) noexcept {
  return take_write(to, from, tag);
}

bool VolumeQueueCore::write_zeroes(ByteOffset at, std::uint64_t length_bytes,
                                   std::uint64_t tag) noexcept {
  if (free_ == nullptr) return false;
  Entry& entry = acquire(VolumeOperation::kZeroes, at, length_bytes, tag);
  if (!map_.holds(at.bytes, length_bytes)) [[unlikely]] {
    if (length_bytes != 0) return refuse(entry, volume_.outside("write_zeroes", at, length_bytes));
    return refuse(entry, volume_.refuse_no_zeroes());
  }
  const Place place = map_.place_of(at.bytes);
  if (length_bytes > place.left_bytes) [[unlikely]]
    return take_in_parts(entry);
  return take_whole(entry, place, [&](Queue& queue, ByteOffset within, std::uint64_t lane_tag) {
    return queue.write_zeroes(within, length_bytes, lane_tag);
  });
}

bool VolumeQueueCore::flush_visible(std::uint64_t tag) noexcept {
  if (free_ == nullptr) return false;
  return take_in_parts(acquire(VolumeOperation::kFlush, ByteOffset{0}, 0, tag));
}

template <typename Take>
bool VolumeQueueCore::take_atomic(Operation operation, ByteOffset at, std::uint64_t tag,
                                  const Take& take) noexcept {
  constexpr std::uint64_t kBytes = sizeof(std::uint64_t);
  if (free_ == nullptr) return false;
  Entry& entry = acquire(VolumeOperation::kAtomic, at, kBytes, tag);
  if (!map_.holds(at.bytes, kBytes) || at.bytes % kBytes != 0) [[unlikely]]
    return refuse(entry, volume_.no_word(operation, at));
  return take_whole(entry, map_.place_of(at.bytes), take);
}

bool VolumeQueueCore::compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                                   std::uint64_t tag) noexcept {
  return take_atomic("compare_swap", at, tag,
                     [&](Queue& queue, ByteOffset within, std::uint64_t lane_tag) {
                       return queue.compare_swap(within, expected, desired, lane_tag);
                     });
}

bool VolumeQueueCore::fetch_add(ByteOffset at, std::uint64_t delta, std::uint64_t tag) noexcept {
  return take_atomic("fetch_add", at, tag,
                     [&](Queue& queue, ByteOffset within, std::uint64_t lane_tag) {
                       return queue.fetch_add(within, delta, lane_tag);
                     });
}

bool VolumeQueueCore::take_in_parts(Entry& entry) noexcept {
  entry.several = true;
  entry.all_posted = false;
  entry.parts_left = 0;
  entry.posted = 0;
  held_taken_.append(entry);
  return true;
}

/// Ends an operation of which nothing was posted.
bool VolumeQueueCore::refuse(Entry& entry, const Error& error) noexcept {
  entry.failed = true;
  entry_errors_[entry.index] = error;
  ended_.append(entry);
  if (EventSet* const events = lanes_.events_or_null()) events->notify();
  return true;
}

void VolumeQueueCore::submit_lanes() noexcept {
  lanes_.submit();
  in_flight_ = room_.depth - room_.left - ended_.count - held_taken_.count;
}

Status VolumeQueueCore::submit() noexcept {
  const Call call{*this};
  if (!call) [[unlikely]]
    return Error{Code::kBusy, "submit"}.with_subject("another thread is in a call of this queue");
  submit_lanes();
  if (held_taken_.first != nullptr) [[unlikely]] {
    const auto until = std::chrono::steady_clock::now() + deadline_;
    while (held_taken_.first != nullptr) {
      Entry& entry = held_taken_.take_first();
      entry.until = until;
      held_.append(entry);
      ++in_flight_;
    }
    post_held();
    // What ended here no lane tells of.
    EventSet* const events = lanes_.events_or_null();
    if (events != nullptr && ended_.first != nullptr) events->notify();
  }
  return {};
}

Result<int> VolumeQueueCore::event_fd() noexcept {
  const auto events = lanes_.events();
  if (!events) return events.error();
  if (ended_.first != nullptr) (*events)->notify();
  return (*events)->fd();
}

}  // namespace remora::volume::detail

namespace remora::volume {

bool VolumeQueue::read(ByteOffset from, Target into, std::uint64_t tag) noexcept {
  if (core_ != nullptr) [[likely]]
    return core_->take_read(from, into, tag);
  return mirror_ != nullptr && mirror_->read(from, into, tag);
}

bool VolumeQueue::write(ByteOffset to, Source from, std::uint64_t tag) noexcept {
  if (core_ != nullptr) [[likely]]
    return core_->take_write(to, from, tag);
  return mirror_ != nullptr && mirror_->write(to, from, tag);
}

}  // namespace remora::volume
