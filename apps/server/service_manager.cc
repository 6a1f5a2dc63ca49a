#include "server/service_manager.h"

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "server/log.h"

namespace remora::apps {
namespace {

using NotifyClock = std::chrono::steady_clock;

/// Waits until the socket has room, if errno of the last call says that it has none. False: it gets
/// none.
bool await_room(int socket, NotifyClock::time_point until) noexcept {
  if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS) return false;
  const int why = errno;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - NotifyClock::now());
  pollfd waited{.fd = socket, .events = POLLOUT, .revents = 0};
  if (left.count() > 0 && ::poll(&waited, 1, static_cast<int>(left.count())) != 0) return true;
  errno = why;
  return false;
}

Error not_sent(Operation operation) {
  const bool timed_out = errno == EAGAIN || errno == ENOBUFS;
  return Error{timed_out ? Code::kTimedOut : Code::kSystem, operation}.with_errno(errno);
}

/// The address in NOTIFY_SOCKET. Errors: kUnsupported.
Result<std::pair<sockaddr_un, socklen_t>> address_of_service_manager() noexcept {
  const char* const variable = std::getenv("NOTIFY_SOCKET");
  const Error none{Code::kUnsupported, "NOTIFY_SOCKET"};
  if (variable == nullptr || *variable == '\0') return none;
  const std::string_view path{variable};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if ((path.front() != '/' && path.front() != '@') || path.size() >= sizeof address.sun_path)
    return none.with_subject("neither a path nor an abstract name: " + std::string{path});
  std::memcpy(address.sun_path, path.data(), path.size());
  if (path.front() == '@') address.sun_path[0] = '\0';  // an abstract name
  return std::pair{address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size())};
}

}  // namespace

Status send_with_descriptor(int socket, std::string_view text, int fd,
                            std::chrono::milliseconds patience) noexcept {
  const auto until = NotifyClock::now() + patience;
  iovec bytes{.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  while (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    if (!await_room(socket, until)) return not_sent("sendmsg");
  return {};
}

Status send_to_service_manager(std::string_view state, int fd,
                               std::chrono::milliseconds patience) noexcept {
  const auto address = address_of_service_manager();
  if (!address) return address.error();
  const auto until = NotifyClock::now() + patience;
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return not_sent("socket");
  Status sent;
  // Connected, since only then poll(2) tells whether the reader's queue has room.
  while (sent && ::connect(socket, reinterpret_cast<const sockaddr*>(&address->first),
                           address->second) != 0)
    if (!await_room(socket, until)) sent = not_sent("connect");
  if (sent)
    sent = send_with_descriptor(
        socket, state, fd,
        std::chrono::ceil<std::chrono::milliseconds>(until - NotifyClock::now()));
  ::close(socket);
  return sent;
}

void notify_service_manager(std::string_view state, std::chrono::milliseconds patience) noexcept {
  const char* const variable = std::getenv("NOTIFY_SOCKET");
  if (variable == nullptr || *variable == '\0') return;
  const Status sent = send_to_service_manager(state, -1, patience);
  if (sent) return;
  if (sent.error().code() == Code::kUnsupported)
    return log_warn(
        "service_manager.not_told",
        fmt::format("NOTIFY_SOCKET is neither a path nor an abstract name: {}", variable),
        {{"address", variable}});
  const std::string reason = std::strerror(sent.error().system_errno());
  log_warn("service_manager.not_told",
           fmt::format("cannot notify the service manager at {} of {}: {}", variable,
                       state.substr(0, state.find('\n')), reason),
           {{"address", variable}, {"reason", reason}});
}

}  // namespace remora::apps
