#pragma once

/// A bound on lines of the log that peers can cause.

#include <cstdint>
#include <string>
#include <utility>

#include "base/clock.h"

namespace remora::log {

/// At most so many lines a second; the others are counted. One thread at a time.
class LogRateLimiter {
 public:
  explicit LogRateLimiter(std::uint32_t lines_per_second) noexcept : lines_max_{lines_per_second} {}

  /// Whether a line may be written now.
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
  /// The end of a line that may be written: how many were not, since the last one.
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
