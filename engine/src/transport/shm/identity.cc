#include "transport/shm/identity.h"

#include <algorithm>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <remora/config/server_config.h>
#include <remora/host_port.h>

namespace remora::transport {

namespace {

using verbs::Address;

struct NetworkNamespace {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
};

/// Zeros if /proc gives no answer.
NetworkNamespace own_network() noexcept {
  struct stat status {};
  if (::stat("/proc/self/ns/net", &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

/// The form in which addresses are compared: IPv4 within IPv6 as IPv4.
ShmAddress plain(const Address& address) noexcept {
  ShmAddress made;
  if (address.family() == AF_INET) {
    sockaddr_in ipv4{};
    std::memcpy(&ipv4, address.raw(), sizeof ipv4);
    made.family = 4;
    std::memcpy(made.bytes.data(), &ipv4.sin_addr, sizeof ipv4.sin_addr);
    return made;
  }
  sockaddr_in6 ipv6{};
  std::memcpy(&ipv6, address.raw(), sizeof ipv6);
  if (IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr)) {
    made.family = 4;
    std::memcpy(made.bytes.data(), ipv6.sin6_addr.s6_addr + 12, 4);
    return made;
  }
  made.family = 6;
  made.scope = ipv6.sin6_scope_id;
  std::memcpy(made.bytes.data(), &ipv6.sin6_addr, sizeof ipv6.sin6_addr);
  return made;
}

bool is_any(const ShmAddress& address) noexcept {
  return std::all_of(address.bytes.begin(), address.bytes.end(),
                     [](std::uint8_t byte) { return byte == 0; });
}

/// The kernel connects "every address" to the loopback address.
ShmAddress destination(ShmAddress address) noexcept {
  if (!is_any(address)) return address;
  if (address.family == 4)
    address.bytes = {127, 0, 0, 1};
  else
    address.bytes.back() = 1;
  return address;
}

bool same(const ShmAddress& a, const ShmAddress& b) noexcept {
  return a.family == b.family && a.scope == b.scope && a.bytes == b.bytes;
}

bool is_loopback(const ShmAddress& address) noexcept {
  if (address.family == 4) return address.bytes[0] == 127;
  ShmAddress loopback{.family = 6};
  loopback.bytes.back() = 1;
  return address.bytes == loopback.bytes;
}

bool listens_at(const ShmIdentity& told, const ShmAddress& wanted) noexcept {
  return std::any_of(told.addresses.begin(), told.addresses.begin() + told.address_count,
                     [&wanted](const ShmAddress& own) {
                       // A socket for every IPv6 address accepts IPv4, too: tcp/listener.cc.
                       if (is_any(own)) return own.family == 6 || own.family == wanted.family;
                       return same(own, wanted);
                     });
}

}  // namespace

ShmIdentity make_identity(std::string_view listen_address, std::uint16_t port,
                          std::span<const Address> addresses) {
  ShmIdentity made;
  made.version = ShmIdentity::kVersion;
  made.port = port;
  const NetworkNamespace network = own_network();
  made.network_device = network.device;
  made.network_inode = network.inode;
  listen_address.copy(made.listen_address.data(), made.listen_address.size() - 1);
  for (const Address& address : addresses) {
    if (made.address_count == ShmIdentity::kMaxAddresses) break;
    made.addresses[made.address_count++] = plain(address);
  }
  return made;
}

Result<std::vector<Address>> addresses_of(std::string_view host, Deadline deadline) {
  if (const auto number = Address::parse(host, 0)) return std::vector{*number};
  if (config::is_loopback(host))
    return std::vector{Address::parse("127.0.0.1", 0).value(), Address::parse("::1", 0).value()};
  return Address::resolve_all(host, 0, deadline);
}

bool is_this_host(const std::vector<Address>& addresses) {
  std::vector<ShmAddress> wanted;
  wanted.reserve(addresses.size());
  for (const Address& address : addresses) wanted.push_back(destination(plain(address)));
  if (std::any_of(wanted.begin(), wanted.end(), is_loopback)) return true;
  ifaddrs* interfaces = nullptr;
  if (::getifaddrs(&interfaces) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner{interfaces, &::freeifaddrs};
  for (const ifaddrs* own = interfaces; own != nullptr; own = own->ifa_next) {
    if (own->ifa_addr == nullptr) continue;
    if (own->ifa_addr->sa_family != AF_INET && own->ifa_addr->sa_family != AF_INET6) continue;
    const ShmAddress address = plain(Address::from(own->ifa_addr));
    if (std::any_of(wanted.begin(), wanted.end(),
                    [&address](const ShmAddress& each) { return same(each, address); }))
      return true;
  }
  return false;
}

Status check_identity(const ShmIdentity& told, const Uri& uri,
                      const std::vector<Address>& addresses, const std::string& path) {
  if (told.version == 0) return {};  // an older server
  const Error wrong{Code::kConnectionRefused, "find the server over shm"};
  const std::string asked = remora::detail::join_host_port(uri.host, uri.port);
  const std::size_t length = ::strnlen(told.listen_address.data(), told.listen_address.size());
  if (told.address_count > ShmIdentity::kMaxAddresses || length == told.listen_address.size())
    return Error{Code::kProtocol, "shm status page"}.with_subject(path);
  const NetworkNamespace network = own_network();
  const bool known = network.inode != 0 && told.network_inode != 0;
  if (known && (network.device != told.network_device || network.inode != told.network_inode))
    return wrong.with_subject(asked + " is in another network namespace than " + path);
  const std::string_view listens{told.listen_address.data(), length};
  const bool same_host =
      told.address_count == 0
          ? listens == uri.host
          : std::any_of(addresses.begin(), addresses.end(), [&told](const Address& address) {
              return listens_at(told, destination(plain(address)));
            });
  if (same_host && told.port == uri.port) return {};
  // Both addresses first: a long path may be cut.
  return wrong.with_subject(asked + " is not " +
                            remora::detail::join_host_port(listens, told.port) + ", which has " +
                            path);
}

}  // namespace remora::transport
