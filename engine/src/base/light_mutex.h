#pragma once

#include <atomic>

namespace remora::detail {

/// A mutex for a few hundred instructions at a time, most of them taken by try_lock(): that costs
/// one exchange, a tenth of std::mutex's. Waits in the kernel, like any other. Not recursive, not
/// fair.
class LightMutex {
 public:
  LightMutex() noexcept = default;
  LightMutex(const LightMutex&) = delete;
  LightMutex& operator=(const LightMutex&) = delete;

  /// The names that std::unique_lock asks for.
  [[nodiscard]] bool try_lock() noexcept {
    int free = kFree;
    return state_.compare_exchange_strong(free, kTaken, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void lock() noexcept {
    if (try_lock()) return;
    // A thread that has waited cannot know whether others still wait.
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree)
      state_.wait(kAwaited, std::memory_order_relaxed);
  }
  void unlock() noexcept {
    if (state_.exchange(kFree, std::memory_order_release) == kAwaited) state_.notify_one();
  }

 private:
  static constexpr int kFree = 0;
  static constexpr int kTaken = 1;
  static constexpr int kAwaited = 2;
  std::atomic<int> state_{kFree};
};

}  // namespace remora::detail
