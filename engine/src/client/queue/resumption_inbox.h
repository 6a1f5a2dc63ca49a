#pragma once

/// Passes Resumables to one thread, which sleeps on a descriptor. Any thread may post; lock-free.

#include <atomic>
#include <cstddef>
#include <utility>

#include <remora/engine/async.h>

#include "client/datapath/event_notifier.h"

namespace remora::detail {

class ResumptionInbox {
 public:
  ResumptionInbox() noexcept = default;
  /// Runs the jobs that are left.
  ~ResumptionInbox() { (void)run_all(); }
  ResumptionInbox(const ResumptionInbox&) = delete;
  ResumptionInbox& operator=(const ResumptionInbox&) = delete;

  /// Before the other functions. False: there is no eventfd (errno says why).
  bool open() noexcept { return notifier_.open(); }
  [[nodiscard]] int event_fd() const noexcept { return notifier_.event(); }

  /// Any thread. `job` may be gone on return.
  void post(Resumable& job) noexcept {
    job.next = posted_.load(std::memory_order_relaxed);
    while (!posted_.compare_exchange_weak(job.next, &job, std::memory_order_release,
                                          std::memory_order_relaxed)) {
    }
    notifier_.tell();
  }

  // By the owner.
  /// Runs the jobs posted by now, the oldest first; returns their number.
  std::size_t run_all() noexcept {
    Resumable* at = posted_.exchange(nullptr, std::memory_order_acquire);
    Resumable* first = nullptr;
    while (at != nullptr) {
      Resumable* const next = std::exchange(at->next, first);
      first = std::exchange(at, next);
    }
    std::size_t count = 0;
    for (; first != nullptr; ++count) {
      Resumable& job = *std::exchange(first, first->next);
      job.run(job);
    }
    return count;
  }
  /// The same; a job that is posted from now on makes the descriptor readable.
  std::size_t run_and_arm() noexcept {
    notifier_.clear();
    notifier_.rest();
    return run_all();
  }

 private:
  std::atomic<Resumable*> posted_{nullptr};  ///< chained by next, the latest first
  EventNotifier notifier_;
};

}  // namespace remora::detail
