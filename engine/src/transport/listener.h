#pragma once

/// Accepts the control connections of clients; the server makes a session of each.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <remora/engine/types.h>
#include <remora/result.h>

#include "transport/server_endpoint.h"

namespace remora::transport {

class DeviceWatch;
class ListenerDevices;

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
  /// How long a client that connects from now on may take until its hello arrives; ten times a
  /// second.
  virtual void set_handshake_timeout(std::chrono::nanoseconds /*patience*/) noexcept {}
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
  /// The same while the server runs; null where no device serves. The listener owns it.
  [[nodiscard]] virtual DeviceWatch* device_watch() noexcept { return nullptr; }
};

}  // namespace remora::transport
