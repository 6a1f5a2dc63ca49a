#pragma once

/// The number of descriptors for the clients that a configuration admits.

#include <cstdint>

#include <remora/config/server_config.h>

namespace remora::apps {

/// For a server whose clients have one lane each.
[[nodiscard]] inline std::uint64_t descriptors_needed(const config::Limits& limits) noexcept {
  /// Over rdma: those of a session and of a lane; the other transports need no more.
  constexpr std::uint64_t kEachConnection = 3;
  /// Standard streams, the pool, listeners, threads, the metrics endpoint and its connections.
  constexpr std::uint64_t kOwn = 128 + 512;
  return kOwn +
         kEachConnection * (2 * std::uint64_t{limits.sessions_max} + limits.pending_handshakes_max);
}

}  // namespace remora::apps
