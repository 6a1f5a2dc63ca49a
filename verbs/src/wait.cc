#include "wait.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <fcntl.h>
#include <poll.h>

#include "errors.h"

namespace remora::verbs::detail {

Status make_non_blocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
      ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
    return system_error("fcntl", errno);
  return {};
}

Status wait_readable(int fd, Deadline deadline) {
  for (;;) {
    const auto left = std::max(deadline - std::chrono::steady_clock::now(),
                               std::chrono::steady_clock::duration::zero());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec timeout{seconds.count(), (left - seconds).count()};
    pollfd entry{fd, POLLIN, 0};
    const int ready = ::ppoll(&entry, 1, &timeout, nullptr);
    if (ready > 0) return {};
    if (ready == 0) return Error{Code::kTimedOut, "ppoll"};
    if (errno != EINTR) return system_error("ppoll", errno);
  }
}

int milliseconds_left(Deadline deadline, int floor_ms) noexcept {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), floor_ms, INT_MAX));
}

}  // namespace remora::verbs::detail
