#pragma once

/// Limits how fast the requests of one session are served (limits.requests_per_second). Requests of
/// a faster client wait here for the token bucket, as many as a client may have unanswered, while
/// the worker serves other sessions.

#include <deque>
#include <memory>

#include "base/clock.h"
#include "base/token_bucket.h"
#include "transport/control_message.h"

namespace remora::detail {

/// Worker only.
class RequestThrottle {
 public:
  using SharedMessage = std::shared_ptr<const transport::ControlMessage>;
  struct Delayed {
    SharedMessage message;
    Clock::time_point arrived;
  };

  explicit RequestThrottle(std::uint32_t requests_per_second) noexcept
      : bucket_{requests_per_second} {}

  /// Applies from now on.
  void set_rate(std::uint32_t requests_per_second) noexcept {
    bucket_.set_per_second(requests_per_second);
  }
  /// Whether one more request may be served at `now`.
  [[nodiscard]] bool admits(Clock::time_point now) noexcept { return bucket_.admits(now); }
  /// The time at which the next request may be served. Called after admits().
  [[nodiscard]] Clock::time_point next() const noexcept { return bucket_.next(); }

  [[nodiscard]] bool empty() const noexcept { return delayed_.empty(); }
  void push(Delayed request) { delayed_.push_back(std::move(request)); }
  /// Removes the oldest waiting request, which must exist.
  [[nodiscard]] Delayed pop();
  void clear() noexcept { delayed_.clear(); }
  /// Whether a log line may say that requests of this session wait: one in a minute.
  [[nodiscard]] bool may_log(Clock::time_point now) noexcept;

 private:
  TokenBucket bucket_;
  std::deque<Delayed> delayed_;
  Clock::time_point logged_at_{};
};

}  // namespace remora::detail
