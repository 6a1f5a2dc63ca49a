#include "socket_address.h"

#include <arpa/inet.h>
#include <array>
#include <charconv>
#include <cstring>

#include <remora/host_port.h>

namespace remora::metrics {
namespace {

Result<std::uint16_t> parse_port(std::string_view text, std::string_view whole) {
  std::uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, port);
  if (text.empty() || failure != std::errc{} || stop != end)
    return Error{Code::kInvalidArgument, "port of a metrics address (0 to 65535)"}.with_subject(
        whole);
  return port;
}

Error malformed(std::string_view whole) {
  return Error{Code::kInvalidArgument, "metrics address must be IPv4:port or [IPv6]:port"}
      .with_subject(whole);
}

}  // namespace

Result<SocketAddress> parse_address(std::string_view text) {
  const auto parts = remora::detail::split_host_port(text);
  if (!parts || !parts->has_port || text.find('\0') != std::string_view::npos)
    return malformed(text);
  std::string host{parts->host};
  SocketAddress address;
  if (parts->in_brackets) {
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    v6->sin6_family = AF_INET6;
    if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) != 1) return malformed(text);
    address.length = sizeof(sockaddr_in6);
  } else {
    if (host == "localhost") host = "127.0.0.1";
    auto* const v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
    v4->sin_family = AF_INET;
    if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) != 1) return malformed(text);
    address.length = sizeof(sockaddr_in);
  }
  const Result<std::uint16_t> port = parse_port(parts->port, text);
  if (!port) return port.error();
  // sin_port and sin6_port have the same place.
  reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = htons(*port);
  return address;
}

std::uint16_t SocketAddress::port() const noexcept {
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

std::string SocketAddress::text() const {
  std::array<char, INET6_ADDRSTRLEN> host{};
  const bool v6 = storage.ss_family == AF_INET6;
  const void* const bytes =
      v6 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr)
         : static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr);
  if (::inet_ntop(storage.ss_family, bytes, host.data(), host.size()) == nullptr) return {};
  return remora::detail::join_host_port(host.data(), port());
}

}  // namespace remora::metrics
