#pragma once

#include <cstdint>

#include "base/clock.h"

namespace remora::detail {

class SessionCore;

/// Pings a silent server, and ends the session whose server has been silent for a whole lease. The
/// control thread.
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
