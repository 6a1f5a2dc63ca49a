#pragma once

#include <cstdint>

#include "base/clock.h"

namespace remora::detail {

class SessionCore;

/// Pings a server that sends nothing. After a lease without a message of the server, interrupts the
/// session, or ends it if it cannot be resumed. The session owns it. Used by the control thread.
class KeepAlive {
 public:
  explicit KeepAlive(SessionCore& session) noexcept : session_{session} {}
  KeepAlive(const KeepAlive&) = delete;
  KeepAlive& operator=(const KeepAlive&) = delete;

  /// Call it several times in each lease.
  void tick(Clock::time_point now) noexcept;

 private:
  SessionCore& session_;
  Clock::time_point ticked_at_{};
  Clock::time_point pinged_at_{};
  std::uint64_t ping_id_ = 0;  ///< id of the latest ping
};

}  // namespace remora::detail
