#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <remora/verbs/address.h>

namespace remora::verbs {
namespace {

// The storage always holds one of these two; the casts are what the sockets API is made of.
const sockaddr_in& as_ipv4(const sockaddr* address) noexcept {
  return *reinterpret_cast<const sockaddr_in*>(address);
}
const sockaddr_in6& as_ipv6(const sockaddr* address) noexcept {
  return *reinterpret_cast<const sockaddr_in6*>(address);
}

struct FreeAddresses {
  void operator()(addrinfo* list) const noexcept { ::freeaddrinfo(list); }
};

// Null where the text is no address of the wanted kind.
std::unique_ptr<addrinfo, FreeAddresses> look_up(std::string_view host, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  if (::getaddrinfo(std::string{host}.c_str(), nullptr, &hints, &list) != 0) list = nullptr;
  return std::unique_ptr<addrinfo, FreeAddresses>{list};
}

}  // namespace

Address::Address() noexcept : storage_{} { storage_.ss_family = AF_INET; }

Result<Address> Address::parse(std::string_view text, std::uint16_t port) {
  const auto list = text.empty() ? nullptr : look_up(text, AI_NUMERICHOST);
  if (!list) return Error{Code::kInvalidArgument, "Address::parse"}.with_subject(text);
  return from(list->ai_addr).with_port(port);
}

Result<Address> Address::resolve(std::string_view host, std::uint16_t port) {
  if (host.empty()) return Error{Code::kInvalidArgument, "Address::resolve"};
  const auto list = look_up(host, AI_ADDRCONFIG);
  if (list) return from(list->ai_addr).with_port(port);
  // AI_ADDRCONFIG hides loopback answers on hosts that have nothing else.
  const auto any = look_up(host, 0);
  if (!any) return Error{Code::kNotFound, "getaddrinfo"}.with_subject(host);
  return from(any->ai_addr).with_port(port);
}

Address Address::any_ipv4(std::uint16_t port) noexcept { return Address{}.with_port(port); }

Address Address::any_ipv6(std::uint16_t port) noexcept {
  Address address;
  address.storage_.ss_family = AF_INET6;
  return address.with_port(port);
}

Address Address::from(const sockaddr* raw) noexcept {
  Address address;
  if (raw == nullptr) return address;
  if (raw->sa_family == AF_INET) std::memcpy(&address.storage_, raw, sizeof(sockaddr_in));
  if (raw->sa_family == AF_INET6) std::memcpy(&address.storage_, raw, sizeof(sockaddr_in6));
  return address;
}

std::uint16_t Address::port() const noexcept {
  return ntohs(family() == AF_INET6 ? as_ipv6(raw()).sin6_port : as_ipv4(raw()).sin_port);
}

Address Address::with_port(std::uint16_t port) const noexcept {
  Address copy = *this;
  if (family() == AF_INET6)
    reinterpret_cast<sockaddr_in6*>(&copy.storage_)->sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in*>(&copy.storage_)->sin_port = htons(port);
  return copy;
}

bool Address::is_any() const noexcept {
  if (family() == AF_INET6) return IN6_IS_ADDR_UNSPECIFIED(&as_ipv6(raw()).sin6_addr) != 0;
  return as_ipv4(raw()).sin_addr.s_addr == INADDR_ANY;
}

std::string Address::host() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (family() != AF_INET6) {
    ::inet_ntop(AF_INET, &as_ipv4(raw()).sin_addr, text.data(), text.size());
    return text.data();
  }
  const sockaddr_in6& ipv6 = as_ipv6(raw());
  ::inet_ntop(AF_INET6, &ipv6.sin6_addr, text.data(), text.size());
  std::string result = text.data();
  if (ipv6.sin6_scope_id == 0) return result;
  std::array<char, IF_NAMESIZE> name{};
  result += '%';
  if (::if_indextoname(ipv6.sin6_scope_id, name.data()) != nullptr) return result + name.data();
  return result + std::to_string(ipv6.sin6_scope_id);
}

std::string Address::to_string() const {
  const std::string number = std::to_string(port());
  // Appended to: GCC 12 warns of overlap in operator+(const char*, std::string&&) at -O3.
  if (family() == AF_INET6) return std::string{"["}.append(host()).append("]:").append(number);
  return host() + ":" + number;
}

socklen_t Address::raw_length_bytes() const noexcept {
  return family() == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

bool operator==(const Address& a, const Address& b) noexcept {
  if (a.family() != b.family() || a.port() != b.port()) return false;
  if (a.family() != AF_INET6)
    return as_ipv4(a.raw()).sin_addr.s_addr == as_ipv4(b.raw()).sin_addr.s_addr;
  const sockaddr_in6& left = as_ipv6(a.raw());
  const sockaddr_in6& right = as_ipv6(b.raw());
  return left.sin6_scope_id == right.sin6_scope_id &&
         std::memcmp(&left.sin6_addr, &right.sin6_addr, sizeof(in6_addr)) == 0;
}

std::ostream& operator<<(std::ostream& out, const Address& address) {
  return out << address.to_string();
}

}  // namespace remora::verbs
