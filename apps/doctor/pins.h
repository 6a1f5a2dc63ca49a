#pragma once

/// How much memory a server or a client pins over rdma: engine/docs/memory.md has the table.

#include <cstdint>

#include <remora/config/server_config.h>

namespace remora::apps::doctor {

struct PinnedBytes {
  /// A server: one session that has all regions open. A client: one session.
  std::uint64_t one_session = 0;
  /// A server: as many sessions as `limits` let in, each with all that it may have open. Of
  /// `clients` with keys, each has its regions pinned once for each key.
  std::uint64_t all_sessions = 0;
};

[[nodiscard]] PinnedBytes pinned_by_server(const config::ServerConfig& config) noexcept;
/// Without slots and memory of the application's own.
[[nodiscard]] PinnedBytes pinned_by_client() noexcept;

}  // namespace remora::apps::doctor
