#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

#include <remora/engine/async.h>

namespace remora::detail {

/// Resumables that any thread posts and one thread runs. Owns none of them. Lock-free.
class PostedResumables {
 public:
  /// Any thread. On return `job` may have been destroyed.
  void post(Resumable& job) noexcept {
    job.next = latest_.load(std::memory_order_relaxed);
    while (!latest_.compare_exchange_weak(job.next, &job, std::memory_order_release,
                                          std::memory_order_relaxed)) {
    }
  }
  [[nodiscard]] bool empty() const noexcept {
    return latest_.load(std::memory_order_acquire) == nullptr;
  }
  /// Runs the jobs that were posted so far, the oldest first; returns their number. The running
  /// thread calls it.
  std::size_t run_all() noexcept {
    if (latest_.load(std::memory_order_relaxed) == nullptr) return 0;
    Resumable* at = latest_.exchange(nullptr, std::memory_order_acquire);
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

 private:
  std::atomic<Resumable*> latest_{nullptr};  ///< chained by next, the latest first
};

}  // namespace remora::detail
