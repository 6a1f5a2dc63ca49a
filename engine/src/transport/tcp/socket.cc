#include "transport/tcp/socket.h"

#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <thread>
#include <utility>

#include "base/crc32c.h"

namespace remora::transport::tcp {

namespace {

/// Waits for `events` until `deadline`. Errors: kTimedOut.
Status await(int socket, short events, Deadline deadline, Operation operation) noexcept {  // NOLINT
  const int left = milliseconds_until(deadline);
  if (left == 0) return Error{Code::kTimedOut, operation};
  pollfd wanted{.fd = socket, .events = events, .revents = 0};
  ::poll(&wanted, 1, left);
  return {};
}

/// Whether the shortage is one of this process or this host, which may end in a moment.
bool is_local_shortage(int system_errno) noexcept {
  return system_errno == EADDRNOTAVAIL || system_errno == EMFILE || system_errno == ENFILE ||
         system_errno == ENOBUFS || system_errno == ENOMEM;
}

Error connect_error(int system_errno) noexcept {
  if (is_local_shortage(system_errno))
    return Error{Code::kSystem, "connect over tcp"}
        .with_errno(system_errno)
        .with_reason(Reason::kLocalShortage);
  const Error error = Error{
      system_errno == ECONNREFUSED || system_errno == ECONNRESET ? Code::kConnectionRefused
      : system_errno == ETIMEDOUT                                ? Code::kTimedOut
      : system_errno == ENETUNREACH || system_errno == EHOSTUNREACH || system_errno == ENETDOWN
          ? Code::kUnreachable
      : system_errno == EACCES || system_errno == EPERM ? Code::kPermissionDenied
                                                        : Code::kSystem,
      "connect over tcp"};
  return error.with_errno(system_errno);
}

/// If no server listens on a port of the dynamic range, the kernel may bind a connecting socket to
/// that very port, so that the socket connects to itself. Source: RFC 793, simultaneous open.
bool met_itself(int socket) noexcept {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_length = sizeof own;
  socklen_t peer_length = sizeof peer;
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
         ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0 &&
         own_length == peer_length && std::memcmp(&own, &peer, own_length) == 0;
}

}  // namespace

Error connection_error(Operation operation, int system_errno) noexcept {
  const bool lost = system_errno == 0 || system_errno == EPIPE || system_errno == ECONNRESET ||
                    system_errno == ENOTCONN || system_errno == ETIMEDOUT ||
                    system_errno == EHOSTUNREACH || system_errno == ENETUNREACH ||
                    system_errno == ECONNABORTED;
  const Error error =
      Error{lost ? Code::kConnectionLost : Code::kSystem, operation}.with_errno(system_errno);
  return lost ? error.with_reason(Reason::kPeerGone) : error;
}

Status prepare_socket(int socket) noexcept {
  constexpr int kOn = 1;
  constexpr int kProbes = 3;
  constexpr int kQuietSeconds = static_cast<int>(kPeerTimeout.count()) / (kProbes + 1);
  constexpr unsigned kTimeoutMs = static_cast<unsigned>(kPeerTimeout.count()) * 1000U;
  const auto set = [socket](int level, int name, auto value) {
    return ::setsockopt(socket, level, name, &value, sizeof value) == 0;
  };
  if (set(IPPROTO_TCP, TCP_NODELAY, kOn) && set(SOL_SOCKET, SO_KEEPALIVE, kOn) &&
      set(IPPROTO_TCP, TCP_KEEPIDLE, kQuietSeconds) &&
      set(IPPROTO_TCP, TCP_KEEPINTVL, kQuietSeconds) && set(IPPROTO_TCP, TCP_KEEPCNT, kProbes) &&
      set(IPPROTO_TCP, TCP_USER_TIMEOUT, kTimeoutMs))
    return {};
  return Error{Code::kSystem, "setsockopt"}.with_errno(errno);
}

void set_abortive_close(int socket, bool abortive) noexcept {
  const linger how{.l_onoff = abortive ? 1 : 0, .l_linger = 0};
  (void)::setsockopt(socket, SOL_SOCKET, SO_LINGER, &how, sizeof how);
}

void abort_connection(int socket) noexcept {
  sockaddr none{};
  none.sa_family = AF_UNSPEC;  // dissolves the association. Source: connect(2)
  if (::connect(socket, &none, sizeof none) != 0) ::shutdown(socket, SHUT_RDWR);
}

bool all_acknowledged(int socket) noexcept {
  int left = 0;
  return ::ioctl(socket, TIOCOUTQ, &left) != 0 || left == 0;
}

namespace {

Result<UniqueFd> connect_once(const verbs::Address& address, Deadline deadline) noexcept {
  UniqueFd socket{::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!socket) return connect_error(errno).with_subject(address.to_string());
  if (auto status = prepare_socket(socket.get()); !status) return status.error();
  if (::connect(socket.get(), address.raw(), address.raw_length_bytes()) != 0) {
    if (errno != EINPROGRESS && errno != EINTR)
      return connect_error(errno).with_subject(address.to_string());
    pollfd wanted{.fd = socket.get(), .events = POLLOUT, .revents = 0};
    while (::poll(&wanted, 1, milliseconds_until(deadline)) <= 0)
      if (Clock::now() >= deadline)
        return Error{Code::kTimedOut, "connect over tcp"}
            .with_subject(address.to_string())
            .with_reason(Reason::kUnreachable);
    int failed = 0;
    socklen_t length = sizeof failed;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failed, &length) != 0) failed = errno;
    if (failed != 0) return connect_error(failed).with_subject(address.to_string());
  }
  if (met_itself(socket.get()))
    return connect_error(ECONNREFUSED).with_subject(address.to_string());
  return socket;
}

}  // namespace

Result<UniqueFd> connect_socket(const verbs::Address& address, Deadline deadline) noexcept {
  constexpr std::chrono::milliseconds kMaxPause{200};
  std::chrono::milliseconds pause{5};
  while (true) {
    auto socket = connect_once(address, deadline);
    // Other processes may release what this host lacks. Descriptors of this process do not become
    // free, since its caller waits here.
    if (socket || socket.error().reason() != Reason::kLocalShortage ||
        socket.error().system_errno() == EMFILE || Clock::now() + pause >= deadline)
      return socket;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kMaxPause);
  }
}

Status send_all(int socket, std::span<const std::byte> bytes, Deadline deadline) noexcept {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return connection_error("send", errno);
    if (auto status = await(socket, POLLOUT, deadline, "send"); !status) return status;
  }
  return {};
}

Status receive_all(int socket, std::span<std::byte> bytes, Deadline deadline) noexcept {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
      continue;
    }
    if (got == 0) return connection_error("recv", 0);
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return connection_error("recv", errno);
    if (auto status = await(socket, POLLIN, deadline, "recv"); !status) return status;
  }
  return {};
}

std::size_t advance(iovec* parts, std::size_t length_bytes) noexcept {
  std::size_t used_up = 0;
  while (length_bytes > 0) {
    iovec& first = parts[used_up];
    const std::size_t part = std::min(length_bytes, first.iov_len);
    first.iov_base = static_cast<std::byte*>(first.iov_base) + part;
    first.iov_len -= part;
    length_bytes -= part;
    if (first.iov_len == 0) ++used_up;
  }
  return used_up;
}

Status send_message(int socket, std::span<const std::byte> message, Deadline deadline) noexcept {
  if (message.empty() || message.size() > kMaxControlMessageBytes)
    return Error{Code::kLimitExceeded, "control message"}.with_limit(message.size(),
                                                                     kMaxControlMessageBytes);
  auto header = FrameHeader{.length_bytes = static_cast<std::uint32_t>(message.size()),
                            .message_crc = crc32c(message)}
                    .to_wire();
  iovec parts[] = {{.iov_base = header.data(), .iov_len = header.size()},
                   // sendmsg(2) does not write through the vector it is given.
                   {.iov_base = const_cast<std::byte*>(message.data()), .iov_len = message.size()}};
  msghdr gathered{};
  gathered.msg_iov = parts;
  gathered.msg_iovlen = 2;
  ssize_t sent = 0;
  while ((sent = ::sendmsg(socket, &gathered, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return connection_error("sendmsg", errno);
    // No byte was sent yet, so the channel is intact.
    if (auto status = await(socket, POLLOUT, deadline, "sendmsg"); !status) return status;
  }
  auto gone = static_cast<std::size_t>(sent);
  Status status;
  if (gone < header.size()) {
    status = send_all(socket, std::span{header}.subspan(gone), deadline);
    gone = header.size();
  }
  if (status) status = send_all(socket, message.subspan(gone - header.size()), deadline);
  if (!status) ::shutdown(socket, SHUT_RDWR);
  return status;
}

}  // namespace remora::transport::tcp
