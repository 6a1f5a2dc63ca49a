#pragma once

/// The memory that a server or a client pins over rdma: engine/docs/memory.md has the table.

#include <cstdint>

#include <remora/config/server_config.h>

namespace remora::apps::doctor {

struct PinnedBytes {
  /// A server: one session that has all regions open. A client: one session.
  std::uint64_t one_session = 0;
  /// A server: as many sessions as `limits` admit, each with all regions that it may have open. For
  /// `clients` with keys, each client has its regions pinned once for each key.
  std::uint64_t all_sessions = 0;
};

[[nodiscard]] PinnedBytes pinned_by_server(const config::ServerConfig& config) noexcept;
/// Without slots and the application's own registered memory.
[[nodiscard]] PinnedBytes pinned_by_client() noexcept;

}  // namespace remora::apps::doctor
