#include "server/notify.h"

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace remora::apps {
namespace {

/// False: errno says why. The socket is connected, since poll(2) tells only then whether the
/// reader's queue has room.
bool send_to(int socket, const sockaddr_un& address, socklen_t length, std::string_view state,
             std::chrono::milliseconds patience) noexcept {
  const auto until = std::chrono::steady_clock::now() + patience;
  bool connected = false;
  for (;;) {
    connected =
        connected || ::connect(socket, reinterpret_cast<const sockaddr*>(&address), length) == 0;
    if (connected && ::send(socket, state.data(), state.size(), MSG_NOSIGNAL) >= 0) return true;
    if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS) return false;
    const int why = errno;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd waited{.fd = socket, .events = POLLOUT, .revents = 0};
    if (left.count() <= 0 || ::poll(&waited, 1, static_cast<int>(left.count())) == 0) {
      errno = why;
      return false;
    }
  }
}

}  // namespace

void notify_service_manager(std::string_view state, std::chrono::milliseconds patience) noexcept {
  const char* const variable = std::getenv("NOTIFY_SOCKET");
  if (variable == nullptr || *variable == '\0') return;
  const std::string_view path{variable};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if ((path.front() != '/' && path.front() != '@') || path.size() >= sizeof address.sun_path) {
    spdlog::warn("NOTIFY_SOCKET is neither a path nor an abstract name: {}", path);
    return;
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  if (path.front() == '@') address.sun_path[0] = '\0';  // an abstract name
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());

  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0 || !send_to(socket, address, length, state, patience))
    spdlog::warn("cannot notify the service manager at {} of {}: {}", path,
                 state.substr(0, state.find('\n')), std::strerror(errno));
  if (socket >= 0) ::close(socket);
}

}  // namespace remora::apps
