#pragma once

/// Accepts the control connections of clients; the server makes a session of each.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include <remora/engine/types.h>
#include <remora/result.h>

#include "transport/device_states.h"
#include "transport/grant.h"
#include "transport/server_endpoint.h"

namespace remora::metrics {
class Registry;
}

namespace remora::transport {

/// A device reports that something of it has failed. Neither queue: the whole device.
struct DeviceFailure {
  std::string device{};
  std::uint32_t queue_pair = 0;  ///< number
  const void* queue = nullptr;   ///< completion queue
};

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
  /// Whether the last accept() ended at its bound, with connections left.
  [[nodiscard]] virtual bool more_to_accept() const noexcept { return false; }
  /// One line for logs: "shm /run/user/0/remora-7471.sock".
  [[nodiscard]] virtual std::string description() const = 0;
  [[nodiscard]] virtual std::uint16_t port() const noexcept = 0;
  /// Ten times a second. The result, if there is one, is for another thread to call, also after
  /// this listener has gone. It **blocks** for as long as memory is registered.
  [[nodiscard]] virtual std::function<void()> tick() noexcept { return {}; }
  /// Failures since the last call, for ServerEndpoint::hit_by().
  [[nodiscard]] virtual std::vector<DeviceFailure> take_failures() noexcept { return {}; }
  /// Its connections are TCP connections of the device (iWARP), so no other listener gets its port.
  [[nodiscard]] virtual bool takes_tcp_port() const noexcept { return false; }
  /// Whether new clients can be served: an error once one could not be, for want of something at
  /// the server, until that is there again. **Blocks** for milliseconds then. Any thread.
  [[nodiscard]] virtual Status serving() noexcept { return {}; }
  /// The server ends, and another process serves the same memory: clients are not told that it has
  /// gone.
  virtual void hand_over() noexcept {}
  /// Null where no device serves: shm and tcp. The listener owns it.
  [[nodiscard]] virtual ListenerDevices* devices() noexcept { return nullptr; }
};

}  // namespace remora::transport
