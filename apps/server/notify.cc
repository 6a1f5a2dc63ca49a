#include "server/notify.h"

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace remora::apps {

void notify_service_manager(std::string_view state) noexcept {
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

  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0 || ::sendto(socket, state.data(), state.size(), MSG_NOSIGNAL,
                             reinterpret_cast<const sockaddr*>(&address), length) < 0)
    spdlog::warn("cannot notify the service manager at {}: {}", path, std::strerror(errno));
  if (socket >= 0) ::close(socket);
}

}  // namespace remora::apps
