#pragma once

/// What an administrator of a server sees: its sessions, and the progress of a drain. A client asks
/// by Session, the application that embeds the server by Server.

#include <chrono>
#include <cstdint>
#include <string>

#include <remora/engine/types.h>

namespace remora {

/// A session of a server, as an administrator of the server sees it.
struct SessionInfo {
  std::uint64_t id = 0;        ///< never 0
  std::string client_name{};   ///< EngineOptions::client_name
  bool client_proven = false;  ///< by its key
  TransportKind transport = TransportKind::kAuto;
  std::string peer{};    ///< the client's address or process, by the transport
  std::string device{};  ///< the server's RDMA device; empty over shm and tcp
  /// Since its connection was accepted; after a resumption, since the new connection was.
  std::chrono::milliseconds age{0};
  std::uint64_t open_regions = 0;  ///< a region that is open twice counts twice
  bool lost = false;               ///< waits for its client to resume it: limits.session_keep
  bool own = false;  ///< the session that has asked; false if the server's application asks
};

/// The progress of a server's drain.
struct DrainState {
  bool draining = false;
  std::chrono::milliseconds remaining{0};  ///< of limits.drain_timeout
  std::uint64_t sessions = 0;              ///< with a client, without the asking session
  std::uint64_t lost_sessions = 0;         ///< SessionInfo::lost
  std::uint64_t open_regions = 0;          ///< of all sessions
};

}  // namespace remora
