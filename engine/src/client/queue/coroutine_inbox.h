#pragma once

/// Coroutines and callbacks that any thread posts for the one thread that resumes or calls them.

#include <atomic>
#include <cstddef>

#include <remora/assert.h>

#include "client/datapath/event_notifier.h"
#include "client/services/posted_resumables.h"

namespace remora::detail {

/// The inbox of a thread that sleeps on a descriptor. Shared by its owner, an Executor or a
/// ResumptionQueue, and the operations that post to it.
class CoroutineInbox {
 public:
  CoroutineInbox() noexcept = default;
  /// Runs the jobs that are left.
  ~CoroutineInbox() { (void)run_all(); }
  CoroutineInbox(const CoroutineInbox&) = delete;
  CoroutineInbox& operator=(const CoroutineInbox&) = delete;

  /// Call it before the other functions. False: the system has no eventfd left (errno has the
  /// reason).
  bool open() noexcept { return notifier_.open(); }
  [[nodiscard]] int event_fd() const noexcept { return notifier_.event(); }

  /// Any thread. On return `job` may have been destroyed.
  void post(Resumable& job) noexcept {
    jobs_.post(job);
    notifier_.notify();
  }

  /// The owner calls these:

  /// Runs the jobs that were posted so far, the oldest first; returns their number.
  std::size_t run_all() noexcept { return jobs_.run_all(); }
  /// As run_all(); from now on a posted job makes the descriptor readable.
  std::size_t run_and_arm() noexcept {
    notifier_.take_event();
    notifier_.announce_sleep();
    return run_all();
  }

  /// Counts the coroutines for whose jobs an Executor waits, each from its co_await until it is
  /// resumed or destroyed.
  void begin_await() noexcept { awaits_.fetch_add(1, std::memory_order_relaxed); }
  void end_await() noexcept {
    const std::size_t before = awaits_.fetch_sub(1, std::memory_order_relaxed);
    REMORA_ASSERT_HOT(before > 0, "a coroutine that waits goes on once");
  }
  [[nodiscard]] bool awaited() const noexcept {
    return awaits_.load(std::memory_order_relaxed) != 0;
  }

 private:
  PostedResumables jobs_;
  EventNotifier notifier_;
  std::atomic<std::size_t> awaits_{0};
};

}  // namespace remora::detail
