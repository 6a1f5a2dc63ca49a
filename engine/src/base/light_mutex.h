#pragma once

#include <atomic>

#include <remora/mutex.h>

namespace remora::detail {

/// A mutex for a few hundred instructions at a time, most of them taken by try_lock(): that costs
/// one exchange, a tenth of std::mutex's. Waits in the kernel, like any other. Not recursive, not
/// fair.
class REMORA_CAPABILITY("mutex") LightMutex {
 public:
  LightMutex() noexcept = default;
  LightMutex(const LightMutex&) = delete;
  LightMutex& operator=(const LightMutex&) = delete;

  /// The names that std::unique_lock asks for.
  [[nodiscard]] bool try_lock() noexcept REMORA_TRY_ACQUIRE(true) {
    int free = kFree;
    return state_.compare_exchange_strong(free, kTaken, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void lock() noexcept REMORA_ACQUIRE() {
    if (try_lock()) return;
    // A thread that has waited cannot know whether others still wait.
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree)
      state_.wait(kAwaited, std::memory_order_relaxed);
  }
  /// Tells clang that the mutex is held here. Does nothing.
  void assert_held() const noexcept REMORA_ASSERT_CAPABILITY(this) {}
  void unlock() noexcept REMORA_RELEASE() {
    if (state_.exchange(kFree, std::memory_order_release) == kAwaited) state_.notify_one();
  }

 private:
  static constexpr int kFree = 0;
  static constexpr int kTaken = 1;
  static constexpr int kAwaited = 2;
  std::atomic<int> state_{kFree};
};

}  // namespace remora::detail
