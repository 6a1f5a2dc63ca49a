#pragma once

/// Limits the bytes that are copied in a second.

#include <chrono>
#include <cstdint>
#include <functional>

namespace remora::volume::detail {

/// One thread.
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
  /// while a copy waits.
  CopyPace(std::uint64_t bytes_per_second_max, std::function<bool()> stop, Time time = real_time());

  /// Waits until `bytes` more may be copied. False: `stop` has said so.
  [[nodiscard]] bool wait_for(std::uint64_t bytes);

 private:
  const std::uint64_t bytes_per_second_max_;
  const std::function<bool()> stop_;
  const Time time_;
  Clock::time_point next_;  ///< from then on the next copy may begin
};

}  // namespace remora::volume::detail
