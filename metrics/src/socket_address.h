#pragma once

/// The address "host:port" on which an endpoint listens.

#include <cstdint>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>

#include <remora/result.h>

namespace remora::metrics {

/// An address to bind, in the form of the system calls.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* raw() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
  [[nodiscard]] sockaddr* raw() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// "127.0.0.1:9471" or "[::1]:9471".
  [[nodiscard]] std::string text() const;
};

/// `IPv4:port`, `[IPv6]:port` or `localhost:port` (127.0.0.1). Names are not looked up. Errors:
/// kInvalidArgument.
Result<SocketAddress> parse_address(std::string_view text);

}  // namespace remora::metrics
