#pragma once

#include <atomic>

#include <remora/assert.h>
#include <remora/mutex.h>

namespace remora::detail {

/// A mutex that is held for a few hundred instructions, and mostly locked by try_lock(), which
/// costs one exchange: a tenth of std::mutex. lock() waits in the kernel. Any thread may use it.
/// Not recursive, not fair.
class REMORA_CAPABILITY("mutex") LightMutex {
 public:
  LightMutex() noexcept = default;
  LightMutex(const LightMutex&) = delete;
  LightMutex& operator=(const LightMutex&) = delete;

  /// The names of functions that std::unique_lock needs.
  [[nodiscard]] bool try_lock() noexcept REMORA_TRY_ACQUIRE(true) {
    int free = kFree;
    return state_.compare_exchange_strong(free, kTaken, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void lock() noexcept REMORA_ACQUIRE() {
    if (try_lock()) return;
    // A thread that has waited cannot know whether other threads still wait, so it leaves kAwaited.
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
