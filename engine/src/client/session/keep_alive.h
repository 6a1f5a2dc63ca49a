#pragma once

#include <cstdint>

#include "base/clock.h"

namespace remora::detail {

class SessionCore;

/// Pings a silent server. After a lease without a message from the server the session is
/// interrupted, or ends if it cannot be resumed. Control thread.
class KeepAlive {
 public:
  explicit KeepAlive(SessionCore& session) noexcept : session_{session} {}
  KeepAlive(const KeepAlive&) = delete;
  KeepAlive& operator=(const KeepAlive&) = delete;

  /// Several times a lease.
  void tick(Clock::time_point now) noexcept;

 private:
  SessionCore& session_;
  Clock::time_point ticked_at_{};
  Clock::time_point pinged_at_{};
  std::uint64_t ping_id_ = 0;  ///< of the latest ping
};

}  // namespace remora::detail
