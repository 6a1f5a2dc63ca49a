#pragma once

/// The RDMA devices of a listener that serve its sessions without the server's CPU.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include <remora/result.h>

#include "transport/device_states.h"
#include "transport/grant.h"

namespace remora::metrics {
class Registry;
}

namespace remora::transport {

/// Registrations, windows and domains that the server has on its devices at present.
struct DeviceTotals {
  std::uint64_t registrations = 0;
  std::uint64_t registered_bytes = 0;  ///< bytes of regions that are registered for grants
  std::uint64_t windows = 0;
  std::uint64_t client_domains = 0;  ///< domains that the sessions of one client share
};

/// Registered bytes of the pool; if several devices register it: bytes that all of them have
/// registered.
using PoolProgress = std::function<void(std::uint64_t done_bytes)>;

/// The devices that serve a listener's sessions without the server's CPU. All functions except
/// totals() are called while the server starts.
class ListenerDevices {
 public:
  virtual ~ListenerDevices() = default;
  /// Any thread.
  [[nodiscard]] virtual DeviceTotals totals() const { return {}; }
  /// Names of the devices that serve at the start.
  [[nodiscard]] virtual std::vector<std::string> names() const = 0;
  /// Devices of names() whose atomics the server can offer: names for atomic domains.
  [[nodiscard]] virtual std::vector<std::string> atomic_domains() const = 0;
  /// Registers with the devices the memory from which ordinary regions are allocated, before the
  /// listener accepts. `hold` keeps the memory as long as a device or a session uses it. True: the
  /// memory is registered as it is, so the caller must not replace its pages from here on. Blocks
  /// while memory is pinned; `stop` ends it between two pieces. The calling thread calls `on_step`,
  /// which may be empty, with the number of registered bytes. Errors: kOutOfMemory (see
  /// Reason::kMemlock), kLimitExceeded (limits.registrations_max), kProvider: if the configuration
  /// leaves the choice of the mechanism, another mechanism is used instead of returning one of
  /// these; kCancelled (`stop`).
  virtual Result<bool> register_pool(std::span<const MemoryStretch> pieces,
                                     std::shared_ptr<void> hold, const std::stop_token& stop,
                                     const PoolProgress& on_step) = 0;
  /// The states of all devices of the host. Outlives the listener.
  [[nodiscard]] virtual std::shared_ptr<const DeviceStates> states() const = 0;
  /// Exports the devices' own counters, for the life of `registry`. A counter that cannot be
  /// exported is missing, and the log says why. Idempotent.
  virtual void show_counters(metrics::Registry& registry) noexcept = 0;
};

}  // namespace remora::transport
