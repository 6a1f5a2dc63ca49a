#include "server/request_throttle.h"

#include <chrono>
#include <utility>

#include <remora/assert.h>

namespace remora::detail {

RequestThrottle::Delayed RequestThrottle::pop() {
  REMORA_ASSERT(!delayed_.empty(), "a request that waits is served once");
  Delayed first = std::move(delayed_.front());
  delayed_.pop_front();
  return first;
}

bool RequestThrottle::may_log(Clock::time_point now) noexcept {
  constexpr std::chrono::minutes kPause{1};
  if (logged_at_ != Clock::time_point{} && now - logged_at_ < kPause) return false;
  logged_at_ = now;
  return true;
}

}  // namespace remora::detail
