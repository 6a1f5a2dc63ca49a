#pragma once

/// Limits the bytes that are copied in a second.

#include <chrono>
#include <cstdint>
#include <functional>

#include <remora/mutex.h>

namespace remora::volume::detail {

/// One limit for all threads that copy. Thread-safe.
class CopyPace {
 public:
  using Clock = std::chrono::steady_clock;
  /// How time passes: in a test it does not.
  struct Time {
    std::function<Clock::time_point()> now{};
    std::function<void(Clock::duration)> sleep{};
  };
  [[nodiscard]] static Time real_time();

  /// `bytes_per_second_max`: 0 is no limit. `stop` may be empty; it is asked before each copy, and
  /// while a copy waits, one call at a time.
  CopyPace(std::uint64_t bytes_per_second_max, std::function<bool()> stop, Time time = real_time());

  /// Waits until `bytes` more may be copied; other threads wait behind this one. False: `stop` has
  /// said so.
  [[nodiscard]] bool wait_for(std::uint64_t bytes);

 private:
  const std::uint64_t bytes_per_second_max_;
  const std::function<bool()> stop_;
  const Time time_;
  remora::detail::Mutex mutex_;
  Clock::time_point next_ REMORA_GUARDED_BY(mutex_);  ///< from then on the next copy may begin
};

}  // namespace remora::volume::detail
