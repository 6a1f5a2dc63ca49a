#include "operation_gate.h"

#include <remora/assert.h>

namespace remora::volume::detail {

using remora::detail::MutexLock;

bool OperationGate::enter_later(Time until) noexcept {
  MutexLock lock{mutex_};
  while (true) {
    // Not inside while it waits: the operation that entered above does not count.
    state_.fetch_sub(1, std::memory_order_release);
    changed_.notify_all();
    const bool opened = changed_.wait_until(lock, until, [&] {
      mutex_.assert_held();
      return closers_ == 0;
    });
    if (!opened) return false;
    if ((state_.fetch_add(1, std::memory_order_acquire) & kClosed) == 0) return true;
  }
}

void OperationGate::tell() noexcept {
  const MutexLock lock{mutex_};
  changed_.notify_all();
}

void OperationGate::close() noexcept {
  const MutexLock lock{mutex_};
  ++closers_;
  state_.fetch_or(kClosed, std::memory_order_acq_rel);
}

void OperationGate::open() noexcept {
  const MutexLock lock{mutex_};
  REMORA_ASSERT(closers_ != 0, "a gate is opened only by those that have closed it");
  if (--closers_ != 0) return;
  state_.fetch_and(~kClosed, std::memory_order_acq_rel);
  changed_.notify_all();
}

bool OperationGate::wait_quiet(Time until) noexcept {
  MutexLock lock{mutex_};
  return changed_.wait_until(lock, until, [&] {
    mutex_.assert_held();
    return quiet();
  });
}

bool OperationGate::is_quiet() noexcept {
  const MutexLock lock{mutex_};
  return quiet();
}

void OperationGate::park() noexcept {
  const MutexLock lock{mutex_};
  ++parked_;
  changed_.notify_all();
}

void OperationGate::unpark() noexcept {
  const MutexLock lock{mutex_};
  REMORA_ASSERT(parked_ != 0, "an operation that goes on was counted when it was parked");
  --parked_;
}

}  // namespace remora::volume::detail
