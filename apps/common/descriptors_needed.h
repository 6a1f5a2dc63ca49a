#pragma once

/// How many descriptors the clients that a configuration admits need.

#include <cstdint>

#include <remora/config/server_config.h>

namespace remora::apps {

/// Of a server whose clients have one lane each.
[[nodiscard]] inline std::uint64_t descriptors_needed(const config::Limits& limits) noexcept {
  /// Over rdma, a session's and a lane's; over the other transports no more.
  constexpr std::uint64_t kEachConnection = 3;
  /// Standard streams, the pool, listeners, threads' own, the metrics endpoint and its connections.
  constexpr std::uint64_t kOwn = 128 + 512;
  return kOwn +
         kEachConnection * (2 * std::uint64_t{limits.sessions_max} + limits.pending_handshakes_max);
}

}  // namespace remora::apps
