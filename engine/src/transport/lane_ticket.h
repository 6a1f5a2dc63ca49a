#pragma once

#include <cstdint>

namespace remora::transport {

/// Ties a lane to its session. The server makes it with the session; the client shows it when it
/// opens a lane.
struct LaneTicket {
  std::uint64_t session_id = 0;
  std::uint64_t secret = 0;  ///< not proof against an eavesdropper
};

}  // namespace remora::transport
