#pragma once

/// Where callers sleep that wait for a lane: one on the lane's own descriptor, the others on a
/// condition. Each completion wakes all of them, to look whether it is theirs.
///
/// Called with the lane's lock held, but for the two functions that sleep: these without it, so
/// that a caller that goes to sleep lets the lane go as all others do.

#include <cstddef>
#include <cstdint>

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
  /// The descriptor's caller is about to sleep: what others poll from now on wakes it.
  void lie_down() noexcept { on_descriptor_ = true; }
  /// Without the lock. Until `lane_fd` is readable, another caller completed something, or `until`.
  void sleep_on(int lane_fd, Deadline until) noexcept;

  /// For the others: the wake that comes next.
  [[nodiscard]] std::uint64_t join() noexcept;
  /// Without the lock. Until a wake after join(), or `until`.
  void sleep_until_woken(std::uint64_t joined, Deadline until) noexcept;
  void part() noexcept { --on_condition_; }

  /// Something completed.
  void wake() noexcept {
    if (on_condition_ != 0 || on_descriptor_) [[unlikely]]
      wake_all();
  }

 private:
  void wake_all() noexcept;
  void wake_condition() noexcept;

  UniqueFd event_;  ///< without it the descriptor's sleeper wakes by the clock
  bool descriptor_taken_ = false;
  bool on_descriptor_ = false;
  std::size_t on_condition_ = 0;
  Mutex mutex_;  ///< locked with the lane's lock held, never the other way round
  Condition condition_;
  std::uint64_t wakes_ REMORA_GUARDED_BY(mutex_) = 0;
};

}  // namespace remora::detail
