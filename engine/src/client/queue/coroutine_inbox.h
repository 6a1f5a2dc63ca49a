#pragma once

/// Coroutines and callbacks that any thread hands over to the one thread in which they go on.

#include <atomic>
#include <cstddef>
#include <utility>

#include <remora/assert.h>
#include <remora/engine/async.h>

#include "client/datapath/event_notifier.h"
#include "client/services/posted_resumables.h"

namespace remora::detail {

/// A list of Resumables in the order in which they were appended. For one thread.
class ResumableList {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  void append(Resumable& job) noexcept {
    job.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &job;
    last_ = &job;
    ++size_;
  }
  /// Removes the first one and runs it. Only while the list is not empty.
  void run_first() noexcept {
    REMORA_ASSERT_HOT(first_ != nullptr && size_ != 0, "a list counts its coroutines");
    Resumable& job = *std::exchange(first_, first_->next);
    --size_;
    job.run(job);
  }
  void clear() noexcept { *this = {}; }

 private:
  Resumable* first_ = nullptr;
  Resumable* last_ = nullptr;  ///< only while the list is not empty
  std::size_t size_ = 0;
};

/// The inbox of a thread that sleeps on a descriptor: of an Executor, or of a ResumptionQueue.
class CoroutineInbox {
 public:
  CoroutineInbox() noexcept = default;
  /// Runs the jobs that are left.
  ~CoroutineInbox() { (void)run_all(); }
  CoroutineInbox(const CoroutineInbox&) = delete;
  CoroutineInbox& operator=(const CoroutineInbox&) = delete;

  /// Before the other functions. False: there is no eventfd (errno says why).
  bool open() noexcept { return notifier_.open(); }
  [[nodiscard]] int event_fd() const noexcept { return notifier_.event(); }

  /// Any thread. `job` may be gone on return.
  void post(Resumable& job) noexcept {
    jobs_.post(job);
    notifier_.notify();
  }

  /// By the owner.

  /// Runs the jobs posted by now, the oldest first; returns their number.
  std::size_t run_all() noexcept { return jobs_.run_all(); }
  /// The same; a job that is posted from now on makes the descriptor readable.
  std::size_t run_and_arm() noexcept {
    notifier_.take_event();
    notifier_.announce_sleep();
    return run_all();
  }

  /// An Executor waits for the jobs of so many coroutines. Each counts from its co_await until it
  /// goes on or is destroyed.
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
