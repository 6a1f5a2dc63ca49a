#pragma once

/// Memory servers for tests: small pools cut into small pieces, on a port of the system's choice.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/types.h>

#include <remora/config/server_config.h>
#include <remora/engine/types.h>

#include "support/child.h"

namespace remora::test {

struct ServerOptions {
  std::uint64_t pool_bytes = 8U << 20U;
  /// Small, so that ordinary regions have many extents.
  std::uint64_t piece_bytes = 256U << 10U;
  std::uint32_t regions_max = 64;
  std::uint32_t sessions_max = 64;
  std::uint16_t port = 0;
  /// The other transports are offered too, where they can be.
  bool all_transports = false;
  std::chrono::milliseconds lease = std::chrono::seconds{10};
  std::chrono::milliseconds keep = std::chrono::seconds{10};
  /// How long clients have to leave when it stops.
  std::chrono::milliseconds drain{0};
};

/// A configuration for Server::start() that offers `transport` alone at listen_address().
config::ServerConfig server_config(TransportKind transport, const ServerOptions& options = {});

/// Helper "server": serves until its stdin ends or SIGTERM comes, then stops cleanly. Says
/// "listening PORT" first, and at a line "lapsed" how many sessions have ended because nothing was
/// heard of their clients for the lease. Keys: transport, address, pool, piece, lease, keep, drain,
/// port; stdin=ignore.
int serve(const HelperArguments& arguments);

/// A server in a process of its own, which can be killed and stopped.
class ServerProcess {
 public:
  explicit ServerProcess(TransportKind transport, const ServerOptions& options = {});

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// SIGKILL: no clean-up of any kind.
  void kill() { child_.kill(); }
  /// SIGSTOP and SIGCONT.
  void pause() const;
  void resume() const;
  /// Sessions that have ended because nothing was heard of their clients for the lease; -1: no
  /// answer.
  int lapsed();
  /// Asks it to stop; its exit status, or -1 where it does not end.
  int stop();

 private:
  Child child_;
  std::uint16_t port_ = 0;
};

}  // namespace remora::test
