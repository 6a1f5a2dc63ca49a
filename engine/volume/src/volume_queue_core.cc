/// How a volume's queue takes and submits operations. volume_queue_wait.cc has their parts and
/// completions.

#include "volume_queue_core.h"

#include <new>
#include <type_traits>
#include <utility>

#include <remora/assert.h>

#include "mirror_queue.h"
#include "volume_core.h"
#include "volume_lane_tag.h"

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

namespace {

/// The memory of a read is a Target, that of a write a Source.
template <typename Memory>
constexpr bool kReads = std::is_same_v<Memory, Target>;

template <typename Memory>
constexpr Operation name_of_transfer() noexcept {
  if constexpr (kReads<Memory>)
    return Operation{"read"};
  else
    return Operation{"write"};
}

template <typename Memory>
[[gnu::always_inline]] inline Ticket give(Queue& queue, ByteOffset at, const Memory& memory,
                                          std::uint64_t lane_tag) noexcept {
  if constexpr (kReads<Memory>)
    return queue.read(at, memory, lane_tag);
  else
    return queue.write(at, memory, lane_tag);
}

/// For operations that were taken, and have no ticket of a lane's queue.
constexpr Ticket kTaken{0, 1};

}  // namespace

/// Call it only while there is room.
[[gnu::always_inline]] inline VolumeQueueEntry& VolumeQueueCore::acquire(
    ByteOffset at, std::uint64_t length_bytes, std::uint64_t tag) noexcept {
  REMORA_ASSERT_HOT(free_ != nullptr && room_.left != 0, "a queue with room has a free place");
  Entry& entry = *free_;
  free_ = entry.next;
  --room_.left;
  entry.tag = tag;
  entry.offset_bytes = at.bytes;
  entry.length_bytes = length_bytes;
  return entry;
}

/// Gives an operation of one part to its lane.
template <typename Take>
[[gnu::always_inline]] inline bool VolumeQueueCore::take_whole(Entry& entry, const Place& place,
                                                               std::uint64_t lane_tag,
                                                               const Take& take) noexcept {
  VolumeLane* const lane = lanes_.select(place.group);
  if (lane == nullptr) [[unlikely]]
    return refuse(
        entry, volume_.why_closed(place.group, ByteOffset{entry.offset_bytes}, entry.length_bytes));
  [[maybe_unused]] const Ticket ticket =
      take(lane->queue, ByteOffset{place.offset_bytes}, lane_tag);
  REMORA_ASSERT_HOT(ticket, "a lane has room for all operations of one part");
  ++lane->taken_count;
  return true;
}

/// The path of most operations, whose instructions unit_volume_cost counts. All other cases are in
/// functions that are not inlined, and the call of the lane's queue comes last. So the compiler
/// makes that call a jump, and saves no register.
template <typename Memory>
[[gnu::always_inline]] inline Ticket VolumeQueueCore::take_transfer(ByteOffset at,
                                                                    const Memory& memory,
                                                                    std::uint64_t tag) noexcept {
  if (free_ == nullptr) [[unlikely]]
    return {};
  const std::uint64_t length_bytes = memory.bytes().size();
  Entry& entry = acquire(at, length_bytes, tag);
  if (!map_.in_one_unit(at.bytes, length_bytes)) [[unlikely]]
    return take_long_or_refuse(entry, memory);
  const Place place = map_.place_of(at.bytes);
  VolumeLane* const lane = lanes_.selected(place.group);
  if (lane == nullptr) [[unlikely]]
    return take_on_other_region(entry, memory, place.group, ByteOffset{place.offset_bytes});
  ++lane->taken_count;
  const Ticket ticket = give(lane->queue, ByteOffset{place.offset_bytes}, memory, entry.index);
  REMORA_ASSERT_HOT(ticket, "a lane has room for all operations of one part");
  return ticket;
}

/// `at`: in the region of the group.
template <typename Memory>
Ticket VolumeQueueCore::take_on_other_region(Entry& entry, const Memory& memory,
                                             std::uint32_t group, ByteOffset at) noexcept {
  take_whole(entry, {.group = group, .offset_bytes = at.bytes}, entry.index,
             [&](Queue& queue, ByteOffset within, std::uint64_t lane_tag) {
               return give(queue, within, memory, lane_tag);
             });
  return kTaken;
}

/// Takes a transfer that is not within one unit of the volume.
template <typename Memory>
Ticket VolumeQueueCore::take_long_or_refuse(Entry& entry, const Memory& memory) noexcept {
  constexpr Operation kName = name_of_transfer<Memory>();
  const ByteOffset at{entry.offset_bytes};
  if (entry.length_bytes == 0) {
    refuse(entry, volume_.refuse_empty(memory));
  } else if (!map_.holds(at.bytes, entry.length_bytes)) {
    refuse(entry, volume_.outside(kName, at, entry.length_bytes));
  } else if (memory.bytes().data() == nullptr) {
    refuse(entry, Error{Code::kInvalidArgument, kName}.with_reason(Reason::kNullPointer));
  } else if constexpr (kReads<Memory>) {
    entry.into = memory;
    take_in_parts(entry, VolumeOperation::kRead);
  } else {
    entry.from = memory;
    take_in_parts(entry, VolumeOperation::kWrite);
  }
  return kTaken;
}

bool VolumeQueueCore::read(ByteOffset from, const Target& into, std::uint64_t tag) noexcept {
  return static_cast<bool>(take_transfer(from, into, tag));
}

bool VolumeQueueCore::write(ByteOffset to, const Source& from, std::uint64_t tag) noexcept {
  return static_cast<bool>(take_transfer(to, from, tag));
}

bool VolumeQueueCore::write_zeroes(ByteOffset at, std::uint64_t length_bytes,
                                   std::uint64_t tag) noexcept {
  if (free_ == nullptr) return false;
  Entry& entry = acquire(at, length_bytes, tag);
  if (!map_.in_one_unit(at.bytes, length_bytes)) [[unlikely]] {
    if (length_bytes == 0) return refuse(entry, volume_.refuse_no_zeroes());
    if (!map_.holds(at.bytes, length_bytes))
      return refuse(entry, volume_.outside("write_zeroes", at, length_bytes));
    return take_in_parts(entry, VolumeOperation::kZeroes);
  }
  return take_whole(entry, map_.place_of(at.bytes), entry.index,
                    [&](Queue& queue, ByteOffset within, std::uint64_t lane_tag) {
                      return queue.write_zeroes(within, length_bytes, lane_tag);
                    });
}

bool VolumeQueueCore::flush_visible(std::uint64_t tag) noexcept {
  if (free_ == nullptr) return false;
  return take_in_parts(acquire(ByteOffset{0}, 0, tag), VolumeOperation::kFlush);
}

template <typename Take>
bool VolumeQueueCore::take_atomic(Operation operation, ByteOffset at, std::uint64_t tag,
                                  const Take& take) noexcept {
  constexpr std::uint64_t kBytes = sizeof(std::uint64_t);
  if (free_ == nullptr) return false;
  Entry& entry = acquire(at, kBytes, tag);
  if (!map_.holds(at.bytes, kBytes) || at.bytes % kBytes != 0) [[unlikely]]
    return refuse(entry, volume_.no_word(operation, at));
  return take_whole(entry, map_.place_of(at.bytes), VolumeLaneTag::kAtomic | entry.index, take);
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

bool VolumeQueueCore::take_in_parts(Entry& entry, VolumeOperation kind) noexcept {
  entry.kind = kind;
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
  REMORA_ASSERT_HOT(room_.left + ended_.count + held_taken_.count <= room_.depth,
                    "a place is free, or has one operation");
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

namespace {

/// Of a queue of a mirror, and of one that was moved from. Not inlined: see take_transfer().
template <typename Memory>
[[gnu::noinline]] Ticket take_on_mirror(
    const remora::detail::OwnedUnique<detail::MirrorQueue>& queue, ByteOffset at,
    const Memory& memory, std::uint64_t tag) noexcept {
  if (queue == nullptr) return {};
  bool taken = false;
  if constexpr (detail::kReads<Memory>)
    taken = queue->read(at, memory, tag);
  else
    taken = queue->write(at, memory, tag);
  return taken ? detail::kTaken : Ticket{};
}

}  // namespace

Ticket VolumeQueue::take_read(ByteOffset from, const Target& into, std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return take_on_mirror(mirror_, from, into, tag);
  return core_->take_transfer(from, into, tag);
}

Ticket VolumeQueue::take_write(ByteOffset to, const Source& from, std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return take_on_mirror(mirror_, to, from, tag);
  return core_->take_transfer(to, from, tag);
}

}  // namespace remora::volume
