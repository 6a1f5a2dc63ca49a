#include "server/descriptor_limit.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include "common/descriptors_needed.h"

namespace remora::apps {

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
