/// The threads of a mirror's queue.

#include <chrono>
#include <new>
#include <utility>

#include <remora/assert.h>

#include "mirror_queue.h"
#include "mirror_volume.h"
#include "volume_core.h"

namespace remora::volume::detail {

using remora::detail::MutexLock;

namespace {

Error deadline_passed(const MirrorQueueEntry& entry, const VolumeRecord& volume) noexcept {
  const auto error = [&](Operation operation) {
    return Error{Code::kTimedOut, operation}
        .with_reason(Reason::kExpired)
        .with_subject(volume.name)
        .with_place(entry.offset_bytes, entry.length_bytes);
  };
  switch (entry.kind) {
    case VolumeOperation::kRead: return error("read");
    case VolumeOperation::kWrite: return error("write");
    case VolumeOperation::kZeroes: return error("write_zeroes");
    case VolumeOperation::kAtomic:
    case VolumeOperation::kFlush: break;
  }
  return error("atomic");
}

}  // namespace

void MirrorQueue::work() noexcept {
  MirrorParts parts;
  MutexLock lock{mutex_};
  while (true) {
    work_.wait(lock, [this] {
      mutex_.assert_held();
      return runnable_.first != nullptr || stopped_;
    });
    if (stopped_) return;  // nothing is in flight
    const std::size_t before = ended_.count;
    take_parts(parts);
    if (runnable_.first != nullptr) work_.notify_one();
    if (!parts.empty()) {
      // Those that have ended without a part are told of now: the others may take a while.
      if (ended_.count != before) tell();
      lock.unlock();
      carry_out(parts);
      lock.lock();
      end_parts(parts);
    }
    tell();
  }
}

/// From the operations in their order those parts that go with the first one. Ends operations of
/// which no further part is carried out.
void MirrorQueue::take_parts(MirrorParts& parts) noexcept {
  // So that operations on other groups do not make the search long.
  constexpr std::size_t kLookAhead = 64;
  parts.clear();
  const auto now = std::chrono::steady_clock::now();
  Entry* before = nullptr;
  Entry* next = nullptr;
  std::size_t seen = 0;
  for (Entry* entry = runnable_.first; entry != nullptr && seen < kLookAhead && !parts.full();
       entry = next, ++seen) {
    next = entry->next;
    if (now >= entry->until) entry->fail(deadline_passed(*entry, volume_->record()));
    if (entry->failed) entry->cut_bytes = entry->length_bytes;
    while (entry->cut_bytes < entry->length_bytes &&
           parts.add(*entry, mirror_.place_of(entry->offset_bytes + entry->cut_bytes))) {
    }
    if (entry->cut_bytes < entry->length_bytes) {
      before = entry;
      continue;
    }
    runnable_.remove(before, *entry);
    if (entry->parts_left == 0) end(*entry);
  }
}

void MirrorQueue::change_word(Entry& entry, GroupOperation& operation) {
  const ByteOffset at{entry.offset_bytes};
  const auto value = entry.swaps
                         ? mirror_.compare_swap(at, entry.expected, entry.operand, entry.until)
                         : mirror_.fetch_add(at, entry.operand, entry.until);
  if (value)
    entry.old_value = *value;
  else
    operation.status = value.error();
}

/// With the place of the operation, as the caller gave it.
void MirrorQueue::name_failures(MirrorParts& parts) const {
  for (std::size_t i = 0; i < parts.operations().size(); ++i) {
    Status& status = parts.operations()[i].status;
    const Entry& entry = parts.entry(i);
    if (!status)
      status = mirror_.named(status.error(), parts.group(), ByteOffset{entry.offset_bytes},
                             entry.length_bytes);
  }
}

void MirrorQueue::carry_out(MirrorParts& parts) noexcept {
  try {
    switch (parts.kind()) {
      case VolumeOperation::kAtomic: return change_word(parts.entry(0), parts.operations().front());
      case VolumeOperation::kRead: mirror_.read_together(parts.group(), parts.operations()); break;
      default: mirror_.write_together(parts.group(), parts.operations());
    }
    name_failures(parts);
  } catch (const std::bad_alloc&) {
    for (GroupOperation& each : parts.operations())
      each.status = Error{Code::kOutOfMemory, "mirror"};
  }
}

void MirrorQueue::end_parts(MirrorParts& parts) noexcept {
  for (std::size_t i = 0; i < parts.operations().size(); ++i) {
    Entry& entry = parts.entry(i);
    if (const Status& status = parts.operations()[i].status; !status) entry.fail(status.error());
    // One with parts that were not taken is among the runnable ones: take_parts() ends it.
    REMORA_ASSERT(entry.parts_left != 0, "a part of an operation ends once");
    if (--entry.parts_left == 0 && entry.cut_bytes == entry.length_bytes) end(entry);
  }
}

/// Lets those begin that have waited for this operation alone.
void MirrorQueue::end(Entry& entry) noexcept {
  REMORA_ASSERT(in_flight_ != 0, "an operation ends once");
  for (Entry* each = entry.later; each != nullptr; each = each->later) {
    if (!entry.conflicts_with(*each)) continue;
    REMORA_ASSERT(each->blocked_by != 0, "an operation counts the earlier ones that it waits for");
    if (--each->blocked_by == 0) runnable_.append(*each);
  }
  if (entry.earlier != nullptr) entry.earlier->later = entry.later;
  if (entry.later != nullptr)
    entry.later->earlier = entry.earlier;
  else
    newest_ = entry.earlier;
  ended_.append(entry);
  --in_flight_;
}

void MirrorQueue::tell() noexcept {
  if (goal_ != 0 && ended_.count >= goal_) done_.notify_one();
  if (events_ != nullptr && ended_.first != nullptr) events_->notify();
}

}  // namespace remora::volume::detail
