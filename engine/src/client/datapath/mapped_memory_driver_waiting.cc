/// Operations over mapped memory that find their session interrupted before they have had an
/// effect.

#include <algorithm>

#include <remora/assert.h>

#include "client/datapath/end_tally.h"
#include "client/datapath/mapped_access.h"
#include "client/datapath/mapped_memory_driver.h"
#include "client/datapath/revocable_grant.h"

namespace remora::detail {

namespace {

/// The owner of waiting operations wakes at least this often to check their deadlines.
constexpr std::chrono::milliseconds kMaxSessionSleep{100};

}  // namespace

/// True: the operation found the session interrupted, and none of its bytes has reached the region.
bool MappedMemoryDriver::may_wait(const OperationRecord& operation) noexcept {
  return !operation.outcome.ok && operation.outcome.code == Code::kConnectionLost &&
         (operation.whole || operation.planned_bytes == 0);
}

/// The rest of submit() if the session is interrupted before or during it.
void MappedMemoryDriver::submit_interrupted(OperationList operations) noexcept {
  EventNotifier* const notifier = operations.first->sink->notifier();
  OperationList kept;
  while (!operations.empty()) {
    OperationRecord& operation = operations.take_first();
    operation.follows = false;
    if (may_wait(operation)) {
      kept.append(operation);
      continue;
    }
    tell(operation);
    end(operation);
  }
  if (!kept.empty()) {
    waiting_count_.fetch_add(kept.count, std::memory_order_relaxed);
    keep(kept);
  }
  // The owner checks the kept operations at once, since the session may have been resumed
  // meanwhile.
  if (notifier != nullptr) notifier->notify();
}

bool MappedMemoryDriver::try_run(OperationRecord& operation) noexcept {
  carry_out(operation);
  if (may_wait(operation)) [[unlikely]] {
    OperationList kept;
    kept.append(operation);
    waiting_count_.fetch_add(1, std::memory_order_relaxed);
    keep(kept);
    return false;
  }
  tell(operation);
  EndTally{metrics_}.add(operation);
  return true;
}

void MappedMemoryDriver::keep(OperationList& operations) noexcept {
  const MutexLock lock{waiting_mutex_};
  waiting_.splice(operations);
}

void MappedMemoryDriver::end_wait_of_one() noexcept {
  const auto before = waiting_count_.fetch_sub(1, std::memory_order_relaxed);
  REMORA_ASSERT(before > 0, "an operation that waits for the session ends once");
}

/// The owner of the sink calls it.
void MappedMemoryDriver::end(OperationRecord& operation) noexcept {
  EndTally{metrics_}.add(operation);
  operation.sink->push(operation);
}

/// True: the operation has ended. False: the session is still interrupted.
bool MappedMemoryDriver::settle(OperationRecord& operation) noexcept {
  while (may_wait(operation)) {
    // The owner may be a poller, whose call no revocation can end first.
    const MappedAccess access{MappedAccess::kEveryGrant};
    const std::optional<Outcome> found = look_at_session_(operation);
    const bool ends = found && !found->ok;
    if (!ends && Clock::now() >= operation.deadline) {
      operation.outcome = Outcome::failure(Code::kTimedOut);
      return true;
    }
    if (!found) return false;
    operation.outcome = *found;
    if (ends) return true;
    carry_out(operation);
  }
  tell(operation);
  return true;
}

/// The owner of the sink calls it. Carries out the waiting operations of `sink` if the session is
/// resumed, and ends those that are past their deadlines. Returns the value of changes_ before it
/// began.
std::uint64_t MappedMemoryDriver::settle_those_of(CompletionSink& sink) noexcept {
  OperationList ours;
  MutexLock lock{waiting_mutex_};
  while (true) {
    const std::uint64_t seen = changes_;
    waiting_.extract([&](const OperationRecord& each) { return each.sink == &sink; },
                     [&](OperationRecord& each) { ours.append(each); });
    if (ours.empty()) return seen;
    lock.unlock();
    // Without the lock, since settle() may copy for a long time, and calls the session.
    OperationList left;
    while (!ours.empty()) {
      OperationRecord& operation = ours.take_first();
      if (settle(operation)) {
        end_wait_of_one();
        end(operation);
      } else {
        left.append(operation);
      }
    }
    lock.lock();
    waiting_.splice(left);
    // wake_owners() notifies only owners of operations in waiting_. A change meanwhile may have
    // missed these operations, so this loop runs again.
    if (changes_ == seen) return seen;
  }
}

void MappedMemoryDriver::wait(CompletionSink& sink, std::size_t at_least,
                              DeadlineSource earliest_deadline) noexcept {
  // Operations complete in submit(), except those that wait for the session.
  while (waiting_count_.load(std::memory_order_relaxed) != 0) {
    const std::uint64_t seen = settle_those_of(sink);
    if (sink.ready() >= at_least && (at_least != 0 || sink.ready() != 0)) return;
    const Clock::time_point now = Clock::now();
    const Deadline deadline = earliest_deadline();
    if (deadline <= now) time_out_overdue();
    if (at_least == 0) return;
    if (deadline <= now) continue;
    MutexLock lock{waiting_mutex_};
    changed_.wait_until(lock, std::min(deadline, now + kMaxSessionSleep), [&] {
      waiting_mutex_.assert_held();
      return changes_ != seen;
    });
  }
}

void MappedMemoryDriver::progress_and_arm(CompletionSink& sink,
                                          DeadlineSource /*earliest_deadline*/) noexcept {
  if (waiting_count_.load(std::memory_order_relaxed) != 0) (void)settle_those_of(sink);
}

/// Sets the outcome of waiting operations that are past their deadlines, so that they have no
/// effect from here on, even if their owner checks late.
void MappedMemoryDriver::time_out_overdue() noexcept {
  const Clock::time_point now = Clock::now();
  const MutexLock lock{waiting_mutex_};
  for (OperationRecord* at = waiting_.first; at != nullptr; at = at->next)
    if (at->deadline <= now) at->outcome = Outcome::failure(Code::kTimedOut);
}

bool MappedMemoryDriver::cancel(OperationRecord& operation) noexcept {
  {
    const MutexLock lock{waiting_mutex_};
    if (!waiting_.remove(operation)) return false;
  }
  end_wait_of_one();
  operation.outcome = Outcome::failure(Code::kCancelled);
  end(operation);
  if (EventNotifier* const notifier = operation.sink->notifier(); notifier != nullptr)
    notifier->notify();
  return true;
}

/// A waiting operation has had no effect. Once its grant is revoked it will have none, since its
/// owner checks the grant before it carries the operation out. So only threads that copy are left
/// to check.
bool MappedMemoryDriver::carries(const RevocableGrant& grant) noexcept {
  if (waiting_count_.load(std::memory_order_relaxed) != 0 && grant.revoked() != Reason::kNone)
    wake_owners();
  return MappedAccess::accessed(grant.serial());
}

/// Wakes the owners of the waiting operations, also owners that sleep.
void MappedMemoryDriver::wake_owners() noexcept {
  const MutexLock lock{waiting_mutex_};
  ++changes_;
  for (OperationRecord* at = waiting_.first; at != nullptr; at = at->next)
    if (EventNotifier* const notifier = at->sink->notifier(); notifier != nullptr)
      notifier->notify();
  changed_.notify_all();
}

}  // namespace remora::detail
