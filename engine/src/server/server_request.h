#pragma once

/// A control request in the server: its identity, its reply, and the outcome for its session.

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "protocol/messages.h"
#include "server/server_metrics.h"

namespace remora::detail {

/// A request whose reply may be sent later.
struct ServerRequest {
  std::uint64_t id;
  RequestKind kind;
  Clock::time_point arrived;
};

/// The reply to a request, and the descriptors that go with it (shm).
struct ServerReply {
  control::Reply reply;
  std::vector<UniqueFd> descriptors;
};

/// The outcome of serving a message; every outcome but the first ends the session.
enum class RequestOutcome : std::uint8_t {
  kAnswered,           ///< or the client has disconnected, with messages to serve
  kRefused,            ///< the client was told that the server refuses it
  kProtocolViolation,  ///< the peer does not speak the protocol
  kReplyNotSent        ///< the reply could not be sent: the client does not read
};

/// The label of a request in the metrics.
[[nodiscard]] RequestKind kind_of(const control::Request& request) noexcept;

}  // namespace remora::detail
