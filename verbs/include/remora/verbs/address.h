#pragma once

/// Address: an IPv4 or IPv6 address with a port, as the connection manager takes it.
///
/// Thread safety: a value.

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <stop_token>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

#include <remora/result.h>
#include <remora/verbs/deadline.h>
#include <remora/verbs/provider.h>

namespace remora::verbs {

/// See the top of this file.
class Address {
 public:
  /// 0.0.0.0:0.
  Address() noexcept;

  /// A numeric address: "192.0.2.1", "::1", "fe80::1%eth0". Does not block.
  /// Errors: kInvalidArgument with the text as subject.
  [[nodiscard]] static Result<Address> parse(std::string_view text, std::uint16_t port);

  /// A numeric address, or every address of a host name in the order of the system's resolver; at
  /// least one. **Blocks** while a name is looked up, at most until `deadline`. The system's
  /// resolver cannot be interrupted: a look-up that takes longer ends by itself, on its own thread,
  /// and a process has at most kLookupsMax unfinished look-ups. The wait also ends when `stop` is
  /// requested. Errors, with the name as subject: kNotFound; kTimedOut; kCancelled (`stop`);
  /// kInvalidArgument (empty, or link-local without a zone); kLimitExceeded (kLookupsMax); kSystem
  /// (no thread; errno kept). Source: getaddrinfo(3).
  [[nodiscard]] static Result<std::vector<Address>> resolve_all(
      std::string_view host, std::uint16_t port, Deadline deadline,
      const Provider& provider = Provider::system(), const std::stop_token& stop = {});
  /// The most unfinished look-ups of a process.
  static constexpr std::size_t kLookupsMax = 64;

  /// The first answer of resolve_all().
  [[nodiscard]] static Result<Address> resolve(std::string_view host, std::uint16_t port,
                                               Deadline deadline,
                                               const Provider& provider = Provider::system());

  /// Every IPv4 address of this host.
  [[nodiscard]] static Address any_ipv4(std::uint16_t port) noexcept;
  /// Every IPv6 address of this host; by the kernel's default the socket also accepts IPv4.
  [[nodiscard]] static Address any_ipv6(std::uint16_t port) noexcept;
  /// Copies `address`, which must be AF_INET or AF_INET6; anything else gives 0.0.0.0:0.
  [[nodiscard]] static Address from(const sockaddr* address) noexcept;

  /// AF_INET or AF_INET6.
  [[nodiscard]] int family() const noexcept { return storage_.ss_family; }
  /// Host byte order; 0: any.
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// The same address with another port.
  [[nodiscard]] Address with_port(std::uint16_t port) const noexcept;
  /// Whether it stands for every address of the host: 0.0.0.0 or ::.
  [[nodiscard]] bool is_any() const noexcept;
  /// Whether this is a link-local IPv6 address without an interface: no host can be reached by it.
  [[nodiscard]] bool lacks_zone() const noexcept;

  /// "192.0.2.1" or "2001:db8::1". Allocates.
  [[nodiscard]] std::string host() const;
  /// "192.0.2.1:7471" or "[2001:db8::1]:7471". Allocates.
  [[nodiscard]] std::string to_string() const;

  /// For calls that take a sockaddr. Borrowed.
  [[nodiscard]] const sockaddr* raw() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage_);
  }
  /// Bytes of raw() that are used.
  [[nodiscard]] socklen_t raw_length_bytes() const noexcept;

  /// Same family, address, scope and port.
  friend bool operator==(const Address& a, const Address& b) noexcept;

 private:
  sockaddr_storage storage_;
};

/// As to_string().
std::ostream& operator<<(std::ostream& out, const Address& address);

}  // namespace remora::verbs
