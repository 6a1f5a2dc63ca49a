#pragma once

/// The mutex that serializes the transitions of a session.

#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include <remora/assert.h>
#include <remora/mutex.h>

namespace remora::detail {

/// A mutex that knows the thread that has locked it. A lane that breaks in that thread is noted
/// instead of beginning another transition, and the thread acts on it before it unlocks.
class REMORA_CAPABILITY("mutex") TransitionMutex {
 public:
  void lock() noexcept REMORA_ACQUIRE() {
    mutex_.lock();
    thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }
  void unlock() noexcept REMORA_RELEASE() {
    REMORA_ASSERT(!lane_broken_, "a transition acts on a lane that breaks meanwhile");
    thread_.store({}, std::memory_order_relaxed);
    mutex_.unlock();
  }
  /// Any thread may ask for itself.
  [[nodiscard]] bool held_by_this_thread() const noexcept {
    return thread_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  /// Tells clang that this thread holds it.
  void assert_held() const noexcept REMORA_ASSERT_CAPABILITY(this) {
    REMORA_ASSERT(held_by_this_thread(), "a function of a transition runs in its thread");
  }

  void note_broken_lane() noexcept REMORA_REQUIRES(this) { lane_broken_ = true; }
  /// Whether a lane has broken since the last call.
  [[nodiscard]] bool take_broken_lane() noexcept REMORA_REQUIRES(this) {
    return std::exchange(lane_broken_, false);
  }

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> thread_{};
  bool lane_broken_ = false;  ///< by the thread that holds the mutex
};

}  // namespace remora::detail
