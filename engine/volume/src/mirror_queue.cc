/// How a mirror's queue takes and submits operations, and hands out completions.
/// mirror_queue_work.cc has its threads.

#include "mirror_queue.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <span>
#include <utility>

#include <remora/assert.h>
#include <remora/start_thread.h>

#include "mirror_volume.h"
#include "volume_core.h"

namespace remora::volume::detail {

using remora::detail::MutexLock;

Result<std::unique_ptr<MirrorQueue>> MirrorQueue::create(std::shared_ptr<VolumeCore> volume,
                                                         const QueueOptions& options) {
  if (options.depth == 0 || options.depth > kDepthMax)
    return Error{Code::kInvalidArgument, "queue"}
        .with_subject("depth, of a mirror")
        .with_limit(options.depth, kDepthMax);
  const auto deadline =
      options.deadline.count() > 0 ? options.deadline : volume->options().operation_deadline;
  try {
    auto queue = std::make_unique<MirrorQueue>(
        std::move(volume), options.depth, std::clamp(deadline, kDeadlineFloor, kDeadlineCeiling));
    // One must run. The others are started when there is work for them.
    if (const Status started = queue->add_thread(); !started) return started.error();
    return queue;
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "queue"};
  }
}

MirrorQueue::MirrorQueue(std::shared_ptr<VolumeCore> volume, std::size_t depth,
                         std::chrono::nanoseconds deadline)
    : volume_{std::move(volume)},
      mirror_{*volume_->mirror()},
      deadline_{deadline},
      room_{.depth = depth, .left = depth},
      entries_(depth),
      ready_(depth),
      ready_errors_(depth, Error{Code::kInternal}) {
  threads_.reserve(kThreadsMax);
  for (Entry& entry : entries_) free_.append(entry);
}

MirrorQueue::~MirrorQueue() {
  {
    MutexLock lock{mutex_};
    goal_ = ended_.count + in_flight_;
    done_.wait(lock, [this] {
      mutex_.assert_held();
      return in_flight_ == 0;
    });
    REMORA_ASSERT(newest_ == nullptr && runnable_.first == nullptr,
                  "no operation is left when its queue goes");
    stopped_ = true;
    work_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

Status MirrorQueue::add_thread() {
  auto thread = remora::detail::start_thread("remora-mirror-q", [this] { work(); });
  if (!thread) return thread.error();
  threads_.push_back(std::move(*thread));
  return {};
}

/// Call it only while there is room.
MirrorQueueEntry& MirrorQueue::acquire(VolumeOperation kind, ByteOffset at,
                                       std::uint64_t length_bytes, std::uint64_t tag) noexcept {
  REMORA_ASSERT(room_.left == free_.count, "a queue has as much room as free places");
  Entry& entry = free_.take_first();
  --room_.left;
  entry.tag = tag;
  entry.offset_bytes = at.bytes;
  entry.length_bytes = length_bytes;
  entry.cut_bytes = 0;
  entry.parts_left = 0;
  entry.kind = kind;
  entry.failed = false;
  entry.old_value = 0;
  return entry;
}

template <typename Check>
bool MirrorQueue::take(Entry& entry, const Check& check) noexcept {
  Status checked;
  try {
    checked = check();
  } catch (const std::bad_alloc&) {  // no memory for the text
    checked = Error{Code::kOutOfMemory, "queue"};
  }
  if (checked) {
    taken_.append(entry);
    return true;
  }
  entry.fail(checked.error());
  const MutexLock lock{mutex_};
  ended_.append(entry);
  if (events_ != nullptr) events_->notify();
  return true;
}

bool MirrorQueue::read(ByteOffset from, const Target& into, std::uint64_t tag) noexcept {
  if (free_.first == nullptr) return false;
  const std::span<std::byte> bytes = into.bytes();
  Entry& entry = acquire(VolumeOperation::kRead, from, bytes.size(), tag);
  entry.into = into;
  return take(entry, [&]() -> Status {
    if (bytes.data() == nullptr && !bytes.empty())
      return Error{Code::kInvalidArgument, "read"}.with_reason(Reason::kNullPointer);
    return mirror_.check("read", from, bytes.size());
  });
}

bool MirrorQueue::write(ByteOffset to, const Source& from, std::uint64_t tag) noexcept {
  if (free_.first == nullptr) return false;
  const std::span<const std::byte> bytes = from.bytes();
  Entry& entry = acquire(VolumeOperation::kWrite, to, bytes.size(), tag);
  entry.from = from;
  return take(entry, [&]() -> Status {
    if (bytes.data() == nullptr && !bytes.empty())
      return Error{Code::kInvalidArgument, "write"}.with_reason(Reason::kNullPointer);
    return mirror_.check("write", to, bytes.size());
  });
}

bool MirrorQueue::write_zeroes(ByteOffset at, std::uint64_t length_bytes,
                               std::uint64_t tag) noexcept {
  if (free_.first == nullptr) return false;
  Entry& entry = acquire(VolumeOperation::kZeroes, at, length_bytes, tag);
  return take(entry, [&] { return mirror_.check("write_zeroes", at, length_bytes); });
}

bool MirrorQueue::flush_visible(std::uint64_t tag) noexcept {
  if (free_.first == nullptr) return false;
  taken_.append(acquire(VolumeOperation::kFlush, ByteOffset{0}, 0, tag));
  return true;
}

bool MirrorQueue::compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                               std::uint64_t tag) noexcept {
  if (free_.first == nullptr) return false;
  Entry& entry = acquire(VolumeOperation::kAtomic, at, sizeof desired, tag);
  entry.swaps = true;
  entry.expected = expected;
  entry.operand = desired;
  return take(entry, [&] { return mirror_.check_word("compare_swap", at); });
}

bool MirrorQueue::fetch_add(ByteOffset at, std::uint64_t delta, std::uint64_t tag) noexcept {
  if (free_.first == nullptr) return false;
  Entry& entry = acquire(VolumeOperation::kAtomic, at, sizeof delta, tag);
  entry.swaps = false;
  entry.operand = delta;
  return take(entry, [&] { return mirror_.check_word("fetch_add", at); });
}

/// Puts the operation behind those that it overlaps.
void MirrorQueue::begin(Entry& entry) noexcept {
  entry.blocked_by = 0;
  for (const Entry* each = newest_; each != nullptr; each = each->earlier)
    if (each->conflicts_with(entry)) ++entry.blocked_by;
  entry.earlier = newest_;
  entry.later = nullptr;
  if (newest_ != nullptr) newest_->later = &entry;
  newest_ = &entry;
  ++in_flight_;
  if (entry.blocked_by == 0) runnable_.append(entry);
}

Status MirrorQueue::submit() noexcept {
  if (!calling_.try_lock())
    return Error{Code::kBusy, "submit"}.with_subject("another thread is in a call of this queue");
  const MutexLock call{calling_, std::adopt_lock};
  const auto until = std::chrono::steady_clock::now() + deadline_;
  std::size_t in_flight = 0;
  {
    const MutexLock lock{mutex_};
    while (taken_.first != nullptr) {
      Entry& entry = taken_.take_first();
      entry.until = until;
      if (entry.kind != VolumeOperation::kFlush) {
        begin(entry);
        continue;
      }
      ended_.append(entry);
      if (events_ != nullptr) events_->notify();
    }
    in_flight = in_flight_;
    // The thread that takes the first parts wakes another one for the rest.
    if (runnable_.first != nullptr) work_.notify_one();
  }
  // Without the threads that cannot be started, the others do all the work.
  while (threads_.size() < std::min(kThreadsMax, in_flight))
    if (!add_thread()) break;
  return {};
}

VolumeCompletions MirrorQueue::hand_out() noexcept {
  std::size_t count = 0;
  while (ended_.first != nullptr) {
    Entry& entry = ended_.take_first();
    const Error* error = nullptr;
    if (entry.failed) {
      ready_errors_[count] = entry.error;
      error = &ready_errors_[count];
    }
    ready_[count++] = VolumeCompletion{entry.tag, entry.old_value, error};
    free_.append(entry);
    ++room_.left;
  }
  return {ready_.data(), count};
}

VolumeCompletions MirrorQueue::wait(std::size_t at_least) noexcept {
  if (!calling_.try_lock()) return {};
  const MutexLock call{calling_, std::adopt_lock};
  MutexLock lock{mutex_};
  goal_ = std::min(at_least, ended_.count + in_flight_);
  done_.wait(lock, [this] {
    mutex_.assert_held();
    return ended_.count >= goal_;
  });
  goal_ = 0;
  return hand_out();
}

VolumeCompletions MirrorQueue::progress() noexcept {
  if (!calling_.try_lock()) return {};
  const MutexLock call{calling_, std::adopt_lock};
  const MutexLock lock{mutex_};
  if (events_ != nullptr) events_->take_notice();
  return hand_out();
}

std::chrono::steady_clock::time_point MirrorQueue::next_deadline() const noexcept {
  const MutexLock lock{mutex_};
  if (ended_.first != nullptr) return std::chrono::steady_clock::now();
  auto earliest = std::chrono::steady_clock::time_point::max();
  for (const Entry* each = newest_; each != nullptr; each = each->earlier)
    earliest = std::min(earliest, each->until);
  return earliest;
}

Result<int> MirrorQueue::event_fd() noexcept {
  const MutexLock lock{mutex_};
  if (events_ == nullptr) {
    auto made = EventSet::create();
    if (!made) return made.error();
    events_ = std::move(*made);
  }
  if (ended_.first != nullptr) events_->notify();
  return events_->fd();
}

}  // namespace remora::volume::detail
