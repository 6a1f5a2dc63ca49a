#include "server/descriptor_limit.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <string>
#include <sys/resource.h>

#include "common/descriptors_needed.h"
#include "server/log.h"

namespace remora::apps {

void raise_descriptor_limit(const config::Limits& limits) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (before != limit.rlim_max && ::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    const std::string reason = std::strerror(errno);
    log_warn("server.descriptor_limit", "limit of open files: " + reason, {{"reason", reason}});
    limit.rlim_cur = before;
  }
  const std::uint64_t needed = descriptors_needed(limits);
  if (limit.rlim_cur >= needed) return;
  log_warn(
      "server.few_descriptors",
      fmt::format(
          "{} open files are allowed, and limits.sessions_max ({}) and "
          "limits.pending_handshakes_max ({}) may need {}: then clients are turned away earlier. "
          "Raise the limit ('ulimit -Hn', LimitNOFILE= of a unit, --ulimit nofile of a container), "
          "or lower these",
          limit.rlim_cur, limits.sessions_max, limits.pending_handshakes_max, needed),
      {{"allowed", std::to_string(limit.rlim_cur), false},
       {"needed", std::to_string(needed), false}});
}

}  // namespace remora::apps
