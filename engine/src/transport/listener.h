#pragma once

/// The server's side of a transport before there is a session.

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include <remora/engine/types.h>
#include <remora/result.h>

#include "transport/grant.h"
#include "transport/server_endpoint.h"

namespace remora::transport {

/// What keeps the clients of one server apart on an RDMA device: for logs and status.
struct DeviceProtection {
  struct Check {
    std::string name;
    std::string verdict;  ///< "kept", "broken", "untested"
    std::string reason;
  };
  std::string device{};
  std::string mechanism{};      ///< "registrations", "windows"
  std::string reason{};         ///< why that one
  std::vector<Check> checks{};  ///< of the device's windows; empty: not asked
};

/// Accepts sessions over one transport. The control thread alone calls it, once the server has
/// started.
class Listener {
 public:
  virtual ~Listener() = default;
  [[nodiscard]] virtual TransportKind kind() const noexcept = 0;
  /// Readable when accept() has something to do. The listener owns it.
  [[nodiscard]] virtual int event_fd() const noexcept = 0;
  /// Sessions that arrived since the last call. Never blocks. A session that misbehaves while it
  /// arrives is dropped and logged; errors are those of the listener itself.
  virtual Result<std::vector<std::unique_ptr<ServerEndpoint>>> accept() noexcept = 0;
  /// Gives the listener the memory that ordinary regions are cut from, before it accepts. `hold`
  /// keeps the memory, for as long as the listener or one of its sessions uses it. True: the memory
  /// is registered as it is, so its pages may not be exchanged for others from here on. Blocks
  /// while memory is pinned, and ends between two pieces at `stop`. Errors: kOutOfMemory (see
  /// Reason::kMemlock), kLimitExceeded (limits.registrations_max), kProvider; where there is a
  /// choice, something else is chosen instead; kCancelled (`stop`).
  virtual Result<bool> acquire_lease(std::span<const MemoryStretch> pieces,
                                     std::shared_ptr<void> hold, const std::stop_token& stop) {
    (void)pieces, (void)hold, (void)stop;
    return false;
  }
  /// One line for logs: "shm /run/user/0/remora-7471.sock".
  [[nodiscard]] virtual std::string description() const = 0;
  [[nodiscard]] virtual std::uint16_t port() const noexcept = 0;
  /// Server devices whose atomics it can offer: names for atomic domains. Empty for shm and tcp.
  [[nodiscard]] virtual std::vector<std::string> devices() const = 0;
  /// Of each of devices(); after acquire_lease() it does not change.
  [[nodiscard]] virtual std::vector<DeviceProtection> protection() const { return {}; }
};

}  // namespace remora::transport
