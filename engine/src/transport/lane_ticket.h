#pragma once

#include <cstdint>

namespace remora::transport {

/// Ties a lane to its session. The server makes the ticket with the session; the client shows it
/// when it opens a lane.
struct LaneTicket {
  std::uint64_t session_id = 0;
  std::uint64_t secret = 0;  ///< does not protect against an eavesdropper
};

}  // namespace remora::transport
