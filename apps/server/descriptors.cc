#include "server/descriptors.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

namespace remora::apps {
namespace {

/// Over rdma, a session's and a lane's; over the other transports no more.
constexpr std::uint64_t kEachConnection = 3;
/// Standard streams, the pool, listeners, threads' own, the metrics endpoint and its connections.
constexpr std::uint64_t kOwn = 128 + 512;

std::uint64_t descriptors_needed(const config::Limits& limits) noexcept {
  return kOwn +
         kEachConnection * (2 * std::uint64_t{limits.sessions_max} + limits.pending_handshakes_max);
}

}  // namespace

void raise_descriptor_limit(const config::Limits& limits) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (before != limit.rlim_max && ::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    spdlog::warn("limit of open files: {}", std::strerror(errno));
    limit.rlim_cur = before;
  }
  const std::uint64_t needed = descriptors_needed(limits);
  if (limit.rlim_cur >= needed) return;
  spdlog::warn(
      "{} open files are allowed, and limits.sessions_max ({}) and limits.pending_handshakes_max "
      "({}) may "
      "need {}: then clients are turned away earlier. Raise the limit ('ulimit -Hn', LimitNOFILE= "
      "of a unit, --ulimit nofile of a container), or lower these",
      limit.rlim_cur, limits.sessions_max, limits.pending_handshakes_max, needed);
}

}  // namespace remora::apps
