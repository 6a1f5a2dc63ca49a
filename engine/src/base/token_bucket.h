#pragma once

/// A bound on the rate of requests: so many in a second or a minute, and so many at once.

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace remora::detail {

/// A token bucket. One thread at a time.
class TokenBucket {
 public:
  /// Twice as many at once.
  explicit TokenBucket(std::uint32_t per_second) noexcept
      : per_second_{static_cast<double>(per_second)}, max_{2 * per_second_} {}
  /// All of a minute's at once.
  [[nodiscard]] static TokenBucket a_minute(std::uint32_t count) noexcept {
    TokenBucket bucket{0};
    bucket.per_second_ = static_cast<double>(count) / 60;
    bucket.max_ = bucket.left_ = static_cast<double>(count);
    return bucket;
  }
  /// Another bound from now on. Tokens that are left stay, as many as the new bound allows.
  void set_per_second(std::uint32_t per_second) noexcept {
    set_bound(static_cast<double>(per_second), 2 * static_cast<double>(per_second));
  }
  /// The same of a bucket of a_minute().
  void set_per_minute(std::uint32_t count) noexcept {
    set_bound(static_cast<double>(count) / 60, static_cast<double>(count));
  }

  /// Whether one more at `now` is within the bound; times never go back.
  [[nodiscard]] bool admits(Clock::time_point now) noexcept {
    if (latest_ != Clock::time_point{}) {
      const double passed = std::chrono::duration<double>(now - latest_).count();
      left_ = std::min(max_, left_ + std::max(0.0, passed) * per_second_);
    }
    latest_ = std::max(latest_, now);
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }
  /// When the next one is, if none is asked meanwhile. After admits().
  [[nodiscard]] Clock::time_point next() const noexcept {
    const double missing = std::max(0.0, 1 - left_) / per_second_;
    return latest_ + std::chrono::ceil<Clock::duration>(std::chrono::duration<double>(missing));
  }

 private:
  void set_bound(double per_second, double max) noexcept {
    per_second_ = per_second;
    max_ = max;
    left_ = std::min(left_, max_);
  }

  double per_second_;
  double max_;
  double left_ = max_;
  Clock::time_point latest_{};
};

}  // namespace remora::detail
