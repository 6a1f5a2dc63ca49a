#include "http_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

namespace remora::metrics {
namespace {

constexpr int kBacklog = 512;

Error socket_error(Operation operation, const SocketAddress& address) {
  const int number = errno;
  Code code = Code::kSystem;
  switch (number) {
    case EADDRINUSE: code = Code::kAddressInUse; break;
    case EACCES: [[fallthrough]];
    case EPERM: code = Code::kPermissionDenied; break;
    case EADDRNOTAVAIL: code = Code::kUnreachable; break;
    case EAFNOSUPPORT: code = Code::kUnsupported; break;
    default: break;
  }
  return Error{code, operation}.with_errno(number).with_subject(address.text());
}

}  // namespace

Wait wait_for(int fd, std::int16_t events, const StopSignal& stop, Deadline deadline) noexcept {
  std::array<pollfd, 2> polled{{{stop.fd(), POLLIN, 0}, {fd, events, 0}}};
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const auto wait_ms = std::clamp<std::int64_t>(left.count(), 0, 3'600'000);
    const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(wait_ms));
    if (polled[0].revents != 0) return Wait::kStopped;
    if (ready > 0) return Wait::kReady;
    if (ready < 0 && errno != EINTR) return Wait::kTimedOut;
    if (std::chrono::steady_clock::now() >= deadline) return Wait::kTimedOut;
  }
}

Result<Descriptor> listen_on(SocketAddress& address) {
  const int family = address.storage.ss_family;
  Descriptor listener{::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (listener.fd() < 0) return socket_error("socket", address);
  const int on = 1;
  const int off = 0;
  // Not SO_REUSEPORT: with it a second process would take half of the scrapes instead of an error.
  if (::setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0)
    return socket_error("setsockopt(SO_REUSEADDR)", address);
  if (family == AF_INET6 &&
      ::setsockopt(listener.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) != 0)
    return socket_error("setsockopt(IPV6_V6ONLY)", address);
  if (::bind(listener.fd(), address.raw(), address.length) != 0)
    return socket_error("bind", address);
  if (::listen(listener.fd(), kBacklog) != 0) return socket_error("listen", address);
  if (::getsockname(listener.fd(), address.raw(), &address.length) != 0)
    return socket_error("getsockname", address);
  return listener;
}

}  // namespace remora::metrics
