#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <utility>

#include <remora/mutex.h>
#include <remora/start_thread.h>
#include <remora/verbs/address.h>

namespace remora::verbs {
namespace {

// The storage always holds one of these two; the sockets API requires the casts.
const sockaddr_in& as_ipv4(const sockaddr* address) noexcept {
  return *reinterpret_cast<const sockaddr_in*>(address);
}
const sockaddr_in6& as_ipv6(const sockaddr* address) noexcept {
  return *reinterpret_cast<const sockaddr_in6*>(address);
}

// Empty if the text is no address of the wanted kind.
std::vector<Address> look_up(const Provider& provider, const std::string& host, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  std::vector<Address> found;
  if (provider.getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return found;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next)
    if (at->ai_family == AF_INET || at->ai_family == AF_INET6)
      found.push_back(Address::from(at->ai_addr));
  provider.freeaddrinfo(list);
  return found;
}

// AI_ADDRCONFIG hides loopback answers on hosts that have no other addresses.
std::vector<Address> look_up_name(const Provider& provider, const std::string& host) {
  std::vector<Address> found = look_up(provider, host, AI_ADDRCONFIG);
  return found.empty() ? look_up(provider, host, 0) : found;
}

/// The kernel answers EINVAL to every call with such an address.
Error without_zone(std::string_view host) {
  return Error{Code::kInvalidArgument, "link-local address without a zone"}.with_subject(host);
}

/// The result of a look-up. Its caller may have returned already: the deadline ends the wait.
struct Lookup {
  remora::detail::Mutex mutex;
  std::condition_variable_any ended;
  bool done REMORA_GUARDED_BY(mutex) = false;
  std::vector<Address> found REMORA_GUARDED_BY(mutex);
};

std::atomic<std::size_t> g_lookups{0};

}  // namespace

Address::Address() noexcept : storage_{} { storage_.ss_family = AF_INET; }

Result<Address> Address::parse(std::string_view text, std::uint16_t port) {
  const auto found = text.empty() ? std::vector<Address>{}
                                  : look_up(Provider::system(), std::string{text}, AI_NUMERICHOST);
  if (found.empty()) return Error{Code::kInvalidArgument, "Address::parse"}.with_subject(text);
  return found.front().with_port(port);
}

Result<std::vector<Address>> Address::resolve_all(std::string_view host, std::uint16_t port,
                                                  Deadline deadline, const Provider& provider,
                                                  const std::stop_token& stop) {
  if (host.empty()) return Error{Code::kInvalidArgument, "Address::resolve"};
  if (const auto number = parse(host, port)) {
    if (number->lacks_zone()) return without_zone(host);
    return std::vector{*number};
  }
  if (g_lookups.fetch_add(1) >= kLookupsMax) {
    g_lookups.fetch_sub(1);
    return Error{Code::kLimitExceeded, "getaddrinfo"}.with_subject(host);
  }
  const auto lookup = std::make_shared<Lookup>();
  auto thread =
      remora::detail::start_thread("remora-lookup", [lookup, &provider, name = std::string{host}] {
        std::vector<Address> found = look_up_name(provider, name);
        g_lookups.fetch_sub(1);
        const remora::detail::MutexLock lock{lookup->mutex};
        lookup->found = std::move(found);
        lookup->done = true;
        lookup->ended.notify_one();
      });
  if (!thread) {
    g_lookups.fetch_sub(1);
    return thread.error();
  }
  thread->detach();
  remora::detail::MutexLock lock{lookup->mutex};
  if (!lookup->ended.wait_until(lock.native(), stop, deadline, [&lookup] {
        lookup->mutex.assert_held();
        return lookup->done;
      }))
    return Error{stop.stop_requested() ? Code::kCancelled : Code::kTimedOut, "getaddrinfo"}
        .with_subject(host);
  if (lookup->found.empty()) return Error{Code::kNotFound, "getaddrinfo"}.with_subject(host);
  std::erase_if(lookup->found, [](const Address& address) { return address.lacks_zone(); });
  if (lookup->found.empty()) return without_zone(host);
  for (Address& address : lookup->found) address = address.with_port(port);
  return std::move(lookup->found);
}

Result<Address> Address::resolve(std::string_view host, std::uint16_t port, Deadline deadline,
                                 const Provider& provider) {
  auto found = resolve_all(host, port, deadline, provider);
  if (!found) return found.error();
  return found->front();
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

bool Address::lacks_zone() const noexcept {
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&as_ipv6(raw()).sin6_addr) != 0 &&
         as_ipv6(raw()).sin6_scope_id == 0;
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
