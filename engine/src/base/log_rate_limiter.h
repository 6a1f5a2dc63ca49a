#pragma once

/// A limit on the log lines that peers can cause.

#include <cstdint>
#include <string>
#include <utility>

#include "base/clock.h"

namespace remora::log {

/// Allows a fixed number of lines in a second, and counts the others. Not thread-safe.
class LogRateLimiter {
 public:
  explicit LogRateLimiter(std::uint32_t lines_per_second) noexcept : lines_max_{lines_per_second} {}

  /// Whether a line may be written at `now`.
  [[nodiscard]] bool allows(Clock::time_point now) noexcept {
    if (now - began_ >= std::chrono::seconds{1}) {
      began_ = now;
      written_ = 0;
    }
    if (written_ < lines_max_) {
      ++written_;
      return true;
    }
    ++left_out_;
    return false;
  }
  /// Text for the end of the next line that is written: how many lines were left out since the last
  /// one. Empty if none was.
  [[nodiscard]] std::string take_left_out() {
    const std::uint64_t count = std::exchange(left_out_, 0);
    return count == 0 ? std::string{} : "; " + std::to_string(count) + " more were not logged";
  }

 private:
  std::uint32_t lines_max_;
  std::uint32_t written_ = 0;
  std::uint64_t left_out_ = 0;
  Clock::time_point began_{};
};

}  // namespace remora::log
