#pragma once

/// The listeners of a server, one for each transport. They are bound before pool memory is touched,
/// so that a port in use fails fast.

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include <remora/config/server_config.h>
#include <remora/engine/server.h>
#include <remora/metrics/registry.h>
#include <remora/result.h>

#include "transport/device_states.h"
#include "transport/listener.h"

namespace remora::detail {

/// Listens for tcp beside an iWARP device that may have the TCP port: on `port` or, if that is in
/// use, on the next one, and logs that. Errors: that of `listen(port)`.
Result<std::unique_ptr<transport::Listener>> listen_beside_iwarp(
    std::uint16_t port,
    const std::function<Result<std::unique_ptr<transport::Listener>>(std::uint16_t)>& listen);

/// Not thread-safe, except that close() may run while other threads call the const functions other
/// than listeners(): it does not change their results.
class ListenerSet {
 public:
  /// Binds the listeners of the transports that the configuration offers. Transports that `auto`
  /// leaves out are appended to `refused`, also after an error. Errors: those of own_addresses()
  /// and of the transports; kUnsupported: no transport can be offered.
  static Result<ListenerSet> open(const config::ServerConfig& config,
                                  const std::shared_ptr<metrics::Registry>& registry,
                                  const std::stop_token& stop,
                                  std::vector<RefusedTransport>& refused);
  void add(std::unique_ptr<transport::Listener> listener);

  /// Ends all listeners.
  void close() noexcept { listeners_.clear(); }
  [[nodiscard]] const std::vector<std::unique_ptr<transport::Listener>>& listeners()
      const noexcept {
    return listeners_;
  }
  /// The port of the first listener, which all others have too, except tcp beside an iWARP device;
  /// 0: no listener has a port.
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Whether a device has the TCP port of that number.
  [[nodiscard]] bool takes_tcp_port() const noexcept { return takes_tcp_port_; }
  [[nodiscard]] const std::vector<TransportKind>& offered() const noexcept { return offered_; }
  [[nodiscard]] bool offers(TransportKind kind) const noexcept;
  /// One line for each listener.
  [[nodiscard]] const std::vector<std::string>& descriptions() const noexcept {
    return descriptions_;
  }
  /// Names of the RDMA devices that serve at the start.
  [[nodiscard]] const std::vector<std::string>& devices() const noexcept { return devices_; }
  /// The atomic domains that the server can offer beside the CPU's: those of the devices that have
  /// atomics.
  [[nodiscard]] const std::vector<std::string>& atomic_domains() const noexcept {
    return atomic_domains_;
  }
  /// The present states of all RDMA devices of the host.
  [[nodiscard]] std::vector<transport::DeviceState> device_states() const;

 private:
  std::vector<std::unique_ptr<transport::Listener>> listeners_;
  std::uint16_t port_ = 0;
  bool takes_tcp_port_ = false;
  std::vector<TransportKind> offered_;
  std::vector<std::string> descriptions_;
  std::vector<std::string> devices_;
  std::vector<std::string> atomic_domains_;
  std::shared_ptr<const transport::DeviceStates> device_states_;  ///< null: no RDMA
};

}  // namespace remora::detail
