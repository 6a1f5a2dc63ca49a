#pragma once

/// A limit on the rate of requests: a number for each second or minute, and a number at once.

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace remora::detail {

/// A token bucket. Not thread-safe.
class TokenBucket {
 public:
  /// Admits `per_second` requests in a second, and twice as many at once.
  explicit TokenBucket(std::uint32_t per_second) noexcept
      : per_second_{static_cast<double>(per_second)}, max_{2 * per_second_} {}
  /// Admits `count` requests in a minute, also all of them at once.
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

  /// Whether a request at `now` is within the limit. `now` must not be earlier than in the last
  /// call.
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
  /// The time at which the next request is admitted if none comes before. Call it after admits().
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
