#pragma once

/// Where the callers that wait for a lane sleep: one on the lane's own descriptor, the others on a
/// condition. LaneWaiters says which of them there are.

#include <cstdint>

#include <remora/mutex.h>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace remora::detail {

/// Thread-safe. A caller that sleeps has released the lane, like any thread that has finished with
/// it; a caller that wakes others may hold the lane's lock.
class LaneSleep {
 public:
  LaneSleep();

  /// Sleeps until `lane_fd` is readable, wake_descriptor(), or `until`. One caller at a time.
  void on_descriptor(int lane_fd, Deadline until) noexcept;
  void wake_descriptor() noexcept;

  /// The number of calls of wake_condition() so far.
  [[nodiscard]] std::uint64_t wakes() noexcept REMORA_EXCLUDES(mutex_);
  /// Sleeps until there were more than `wakes_before`, or `until`.
  void on_condition(std::uint64_t wakes_before, Deadline until) noexcept REMORA_EXCLUDES(mutex_);
  void wake_condition() noexcept REMORA_EXCLUDES(mutex_);

 private:
  UniqueFd event_;  ///< wakes the caller on the lane's descriptor; may be empty
  Mutex mutex_;     ///< locked with the lane's lock held, never the other way round
  Condition condition_;
  std::uint64_t wakes_ REMORA_GUARDED_BY(mutex_) = 0;
};

}  // namespace remora::detail
