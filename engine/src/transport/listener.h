#pragma once

/// Accepts the control connections of clients; the server makes a session of each.

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

namespace remora::metrics {
class Registry;
}

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

/// The devices that serve a listener's sessions by themselves. Called while the server starts.
class ListenerDevices {
 public:
  virtual ~ListenerDevices() = default;
  /// Devices whose atomics the server can offer: names for atomic domains.
  [[nodiscard]] virtual std::vector<std::string> names() const = 0;
  /// Gives the devices the memory that ordinary regions are cut from, before the listener accepts.
  /// `hold` keeps the memory, for as long as a device or a session uses it. True: the memory is
  /// registered as it is, so its pages may not be exchanged for others from here on. Blocks while
  /// memory is pinned, and ends between two pieces at `stop`. Errors: kOutOfMemory (see
  /// Reason::kMemlock), kLimitExceeded (limits.registrations_max), kProvider; where the
  /// configuration leaves the choice, another mechanism is chosen instead; kCancelled (`stop`).
  virtual Result<bool> register_pool(std::span<const MemoryStretch> pieces,
                                     std::shared_ptr<void> hold, const std::stop_token& stop) = 0;
  /// Of each of names(); does not change after register_pool().
  [[nodiscard]] virtual std::vector<DeviceProtection> protection() const = 0;
  /// Exports the devices' own counters, for the life of `registry`. What cannot be shown is
  /// missing, and the log says why. Idempotent.
  virtual void show_counters(metrics::Registry& registry) noexcept = 0;
};

/// Accepts control connections over one transport. The control thread alone calls it, once the
/// server has started.
class Listener {
 public:
  virtual ~Listener() = default;
  [[nodiscard]] virtual TransportKind kind() const noexcept = 0;
  /// Readable when accept() has something to do. The listener owns it.
  [[nodiscard]] virtual int event_fd() const noexcept = 0;
  /// Control connections that arrived since the last call. Never blocks. A client that misbehaves
  /// while it connects is dropped and logged; errors are those of the listener itself.
  virtual Result<std::vector<std::unique_ptr<ServerEndpoint>>> accept() noexcept = 0;
  /// One line for logs: "shm /run/user/0/remora-7471.sock".
  [[nodiscard]] virtual std::string description() const = 0;
  [[nodiscard]] virtual std::uint16_t port() const noexcept = 0;
  /// Null where no device serves: shm and tcp. The listener owns it.
  [[nodiscard]] virtual ListenerDevices* devices() noexcept { return nullptr; }
};

}  // namespace remora::transport
