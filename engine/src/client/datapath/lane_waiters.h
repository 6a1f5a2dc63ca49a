#pragma once

/// The callers that wait for a lane sleep here: one on the lane's own descriptor, the others on a
/// condition. Each completion wakes all of them, and each looks for its own.
///
/// The caller holds the lane's lock, except in the two functions that sleep: there it has released
/// the lane, like any thread that has finished with it.

#include <cstddef>
#include <cstdint>

#include <remora/assert.h>
#include <remora/mutex.h>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace remora::detail {

class LaneWaiters {
 public:
  LaneWaiters();

  /// True for one caller at a time, until it calls give_descriptor_back().
  bool take_descriptor() noexcept;
  void give_descriptor_back() noexcept;
  /// The caller on the descriptor is about to sleep: from now on a thread that polls a completion
  /// wakes it.
  void announce_sleep() noexcept { on_descriptor_ = true; }
  /// Without the lock. Sleeps until `lane_fd` is readable, another thread polls a completion, or
  /// `until`.
  void sleep_on(int lane_fd, Deadline until) noexcept;

  /// A caller is going to sleep on the condition. Returns the number of wakes so far.
  [[nodiscard]] std::uint64_t begin_wait() noexcept;
  /// Without the lock. Sleeps until the first wake after begin_wait(), or `until`.
  void sleep_until_woken(std::uint64_t wakes_before, Deadline until) noexcept;
  void end_wait() noexcept {
    REMORA_ASSERT(on_condition_ > 0, "a caller that has begun to wait ends its wait once");
    --on_condition_;
  }

  /// A completion was polled.
  void wake() noexcept {
    if (on_condition_ != 0 || on_descriptor_) [[unlikely]]
      wake_all();
  }

 private:
  void wake_all() noexcept;
  void wake_condition() noexcept;

  UniqueFd event_;  ///< wakes the caller on the lane's descriptor; may be empty
  bool descriptor_taken_ = false;
  bool on_descriptor_ = false;
  std::size_t on_condition_ = 0;
  Mutex mutex_;  ///< locked with the lane's lock held, never the other way round
  Condition condition_;
  std::uint64_t wakes_ REMORA_GUARDED_BY(mutex_) = 0;
};

}  // namespace remora::detail
