#pragma once

/// What a listener has where devices serve its sessions by themselves.

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

/// What the server has on its devices at present.
struct DeviceTotals {
  std::uint64_t registrations = 0;
  std::uint64_t registered_bytes = 0;  ///< of regions, for grants
  std::uint64_t windows = 0;
  std::uint64_t client_domains = 0;  ///< that the sessions of one client share
};

/// Bytes of the pool that are registered, where several devices do that: on all of them.
using PoolProgress = std::function<void(std::uint64_t done_bytes)>;

/// The devices that serve a listener's sessions by themselves. Called while the server starts, but
/// for totals().
class ListenerDevices {
 public:
  virtual ~ListenerDevices() = default;
  /// Any thread.
  [[nodiscard]] virtual DeviceTotals totals() const { return {}; }
  /// Those that serve at the start, by name.
  [[nodiscard]] virtual std::vector<std::string> names() const = 0;
  /// Those of names() whose atomics the server can offer: names for atomic domains.
  [[nodiscard]] virtual std::vector<std::string> atomic_domains() const = 0;
  /// Gives the devices the memory that ordinary regions are cut from, before the listener accepts.
  /// `hold` keeps the memory, for as long as a device or a session uses it. True: the memory is
  /// registered as it is, so its pages may not be exchanged for others from here on. Blocks while
  /// memory is pinned, and ends between two pieces at `stop`. `on_step`, which may be empty, is
  /// called by this thread while it does: how many bytes are registered. Errors: kOutOfMemory (see
  /// Reason::kMemlock), kLimitExceeded (limits.registrations_max), kProvider; where the
  /// configuration leaves the choice, another mechanism is chosen instead; kCancelled (`stop`).
  virtual Result<bool> register_pool(std::span<const MemoryStretch> pieces,
                                     std::shared_ptr<void> hold, const std::stop_token& stop,
                                     const PoolProgress& on_step) = 0;
  /// Of all devices of the host. Outlives the listener.
  [[nodiscard]] virtual std::shared_ptr<const DeviceStates> states() const = 0;
  /// Exports the devices' own counters, for the life of `registry`. What cannot be shown is
  /// missing, and the log says why. Idempotent.
  virtual void show_counters(metrics::Registry& registry) noexcept = 0;
};

}  // namespace remora::transport
