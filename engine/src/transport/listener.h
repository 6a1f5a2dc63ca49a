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

/// Accepts control connections over one transport. After the server has started, only the control
/// thread calls it.
class Listener {
 public:
  virtual ~Listener() = default;
  [[nodiscard]] virtual TransportKind kind() const noexcept = 0;
  /// Readable when accept() has a connection or an error to handle. The listener owns it.
  [[nodiscard]] virtual int event_fd() const noexcept = 0;
  /// Control connections that arrived since the last call. Never blocks. A client that misbehaves
  /// while it connects is dropped and logged; the returned errors concern the listener itself.
  virtual Result<std::vector<std::unique_ptr<ServerEndpoint>>> accept() noexcept = 0;
  /// Accepts a lane that a client of a session has requested, if one waits and the transport can
  /// tell it from a new connection. False: it has accepted none. Never blocks.
  [[nodiscard]] virtual bool accept_lane() noexcept { return false; }
  /// Whether the last accept() stopped at its bound, with connections left.
  [[nodiscard]] virtual bool more_to_accept() const noexcept { return false; }
  /// One line for logs: "shm /run/user/0/remora-7471.sock".
  [[nodiscard]] virtual std::string description() const = 0;
  [[nodiscard]] virtual std::uint16_t port() const noexcept = 0;
  /// The time that a client which connects from now on has until its hello arrives. Called ten
  /// times a second.
  virtual void set_handshake_timeout(std::chrono::nanoseconds /*patience*/) noexcept {}
  /// True: the connections are TCP connections of the device (iWARP), so no other listener can bind
  /// its port.
  [[nodiscard]] virtual bool takes_tcp_port() const noexcept { return false; }
  /// Whether new clients can be served. After a client could not be served because the server
  /// lacked something, returns that error until the server has it again; then it **blocks** for
  /// milliseconds. Any thread.
  [[nodiscard]] virtual Status serving() noexcept { return {}; }
  /// The server ends, and another process will serve the same memory: clients are not told that the
  /// server has gone.
  virtual void hand_over() noexcept {}
  /// Null when no device serves: shm and tcp. The listener owns it.
  [[nodiscard]] virtual ListenerDevices* devices() noexcept { return nullptr; }
  /// The listener's devices while the server runs; null when no device serves. The listener owns
  /// it.
  [[nodiscard]] virtual DeviceWatch* device_watch() noexcept { return nullptr; }
};

}  // namespace remora::transport
