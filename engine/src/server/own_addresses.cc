#include "server/own_addresses.h"

#include <algorithm>
#include <cerrno>
#include <netinet/in.h>
#include <sys/socket.h>

#include <remora/config/server_config.h>

#include "base/log.h"
#include "base/unique_fd.h"

namespace remora::detail {

namespace {

/// Returns 0, or the errno with which this machine cannot listen at `address`. Tries it with a
/// datagram socket at a port that the kernel chooses, which disturbs no service. Returns 0 also if
/// no socket can be made at all (a sandbox that allows Unix sockets only).
int errno_of_bind(const verbs::Address& address) noexcept {
  const UniqueFd socket{::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  if (!socket) return errno == EAFNOSUPPORT && address.family() == AF_INET6 ? errno : 0;
  constexpr int kOn = 1;
  if (address.family() == AF_INET6)
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &kOn, sizeof kOn);
  const verbs::Address any_port = address.with_port(0);
  if (::bind(socket.get(), any_port.raw(), any_port.raw_length_bytes()) == 0) return 0;
  const bool elsewhere = errno == EADDRNOTAVAIL || errno == ENODEV || errno == EINVAL;
  return elsewhere ? errno : 0;
}

}  // namespace

Result<std::vector<verbs::Address>> own_addresses(Operation key, const std::string& host,
                                                  const std::stop_token& stop) {
  constexpr std::chrono::seconds kNameTimeout{10};
  const auto found = verbs::Address::resolve_all(host, 0, verbs::deadline_in(kNameTimeout),
                                                 verbs::Provider::system(), stop);
  if (!found) {
    const Error error = Error{found.error().code(), key}.with_subject(host);
    return found.error().system_errno() == 0 ? error
                                             : error.with_errno(found.error().system_errno());
  }
  std::vector<verbs::Address> own;
  std::string others;
  int why = 0;
  for (const verbs::Address& address : *found) {
    if (const int failed = errno_of_bind(address); failed != 0) {
      why = failed;
      others += (others.empty() ? "" : ", ") + address.host();
    } else if (std::find(own.begin(), own.end(), address) == own.end()) {
      own.push_back(address);
    }
  }
  if (own.empty()) return Error{Code::kUnreachable, key}.with_subject(host).with_errno(why);
  // "localhost" resolves to ::1 also when IPv6 is turned off.
  if (!others.empty() && !config::is_loopback(host))
    log::warn(
        {"server.name_ambiguous", "key host addresses"},
        "{} {}: the name also stands for {}, no address of this machine: a client that is given it "
        "does not reach this server",
        key.text(), host, others);
  return own;
}

}  // namespace remora::detail
