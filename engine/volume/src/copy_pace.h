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

  using Question = std::function<bool()>;

  /// `bytes_per_second_max`: 0 is no limit. `stop` may be empty; it is asked before each copy, and
  /// while a copy waits, one call at a time.
  CopyPace(std::uint64_t bytes_per_second_max, Question stop, Time time = real_time());

  /// Waits until `bytes` more may be copied; other threads wait for the time after that. False:
  /// `stop` has said so, or `ended`, which may be empty and is asked while this thread waits.
  [[nodiscard]] bool wait_for(std::uint64_t bytes, const Question& ended = {});

 private:
  [[nodiscard]] bool stopped();
  /// When a copy of so many bytes may begin.
  [[nodiscard]] Clock::time_point reserve(std::uint64_t bytes);

  const std::uint64_t bytes_per_second_max_;
  const Question stop_;
  const Time time_;
  remora::detail::Mutex asking_;  ///< while `stop_` is asked
  remora::detail::Mutex mutex_;
  Clock::time_point next_ REMORA_GUARDED_BY(mutex_);  ///< from then on the next copy may begin
};

}  // namespace remora::volume::detail
