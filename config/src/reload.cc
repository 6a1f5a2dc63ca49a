/// The keys of its file that a running server applies on SIGHUP.

#include <array>
#include <string>
#include <string_view>

#include <remora/config/describe.h>

namespace remora::config {
namespace {

// A rule applies to the key, or to all keys below it that have no rule of their own.
constexpr std::array kRules{
    ReloadRule{"listen", false, "Listeners are bound at the start, before memory is touched."},
    ReloadRule{"transports", false, "Listeners, devices and threads are opened at the start."},
    ReloadRule{"rdma", false, "The settings of a device's connections are made when it is opened."},
    ReloadRule{"pool", false, "The memory is mapped, and registered with devices, at the start."},
    ReloadRule{"regions", false,
               "They are created at the start; `remora create`, `resize` and `rm` change regions "
               "of a running server."},
    ReloadRule{"auth", false, "Sessions that are there have proven their client, or have not."},
    ReloadRule{"clients", true,
               "With `auth: keys`, before and after. Sessions of a client or key that is gone end; "
               "rights and quotas count from the next request."},
    ReloadRule{"limits.sessions_max", true,
               "For the next session that is admitted. Lower: sessions that are there stay."},
    ReloadRule{"limits.regions_max", true,
               "For the next region that is created. Lower: regions that are there stay."},
    ReloadRule{"limits.session_regions_max", true,
               "For the next region that a session opens. Lower: what is open stays."},
    ReloadRule{"limits.session_memory", true,
               "For the next region that a session opens. Lower: what is open stays."},
    ReloadRule{"limits.handshake_timeout", true,
               "For all connections without a hello; over tcp, before its introduction, for the "
               "next connection."},
    ReloadRule{"limits.request_timeout", true, "For the next control request."},
    ReloadRule{"limits.session_lease", false,
               "A client has been told the lease when its session began, and keeps to that."},
    ReloadRule{"limits.session_keep", true, "For the next session that loses its client."},
    ReloadRule{"limits.drain_timeout", true, "For the stop, or the drain, that comes next."},
    ReloadRule{"limits.pending_handshakes_max", true, "For the next connection."},
    ReloadRule{"limits.requests_per_second", true, "For the next request of every session."},
    ReloadRule{"limits.resumes_per_minute", true, "For the next resumption of every session."},
    ReloadRule{"limits.revoke_grace", true, "For the revocation that begins next."},
    ReloadRule{"limits.registrations_max", false,
               "The budget of the devices is made when they are opened, and memory is registered "
               "against it."},
    ReloadRule{"limits.windows_max", false,
               "The budget of the devices is made when they are opened, and windows are allocated "
               "against it."},
    ReloadRule{"limits.registered_bytes_max", false,
               "The budget is made when the devices are opened, and memory is registered against "
               "it."},
    ReloadRule{"log.level", true, "For the next line."},
    ReloadRule{"log.format", false, "The log is opened at the start."},
    ReloadRule{"cluster", false, "The server registers itself with what it has read at the start."},
    ReloadRule{"metrics", false, "The endpoint is bound at the start, with its credentials."},
};
constexpr ReloadRule kOther{"", false, "Read at the start alone."};

// Whether `path` is `above` or below it.
bool is_within(std::string_view path, std::string_view above) {
  if (!path.starts_with(above)) return false;
  return path.size() == above.size() || path[above.size()] == '.' || path[above.size()] == '[';
}

}  // namespace

std::span<const ReloadRule> reload_rules() noexcept { return kRules; }

const ReloadRule& reload_rule(std::string_view path) noexcept {
  for (const ReloadRule& rule : kRules)
    if (is_within(path, rule.path)) return rule;
  return kOther;
}

Limits reloaded(const Limits& running, const Limits& read) noexcept {
  Limits taken = read;
  taken.session_lease = running.session_lease;
  taken.registrations_max = running.registrations_max;
  taken.windows_max = running.windows_max;
  taken.registered_bytes_max = running.registered_bytes_max;
  return taken;
}

std::string reload_markdown() {
  std::string text =
      "| key | SIGHUP | from when, or why not |\n"
      "|---|---|---|\n";
  for (const ReloadRule& rule : kRules) {
    text.append("| `").append(rule.path).append("` | ");
    text.append(rule.taken ? "taken" : "next start").append(" | ").append(rule.note);
    text.append(" |\n");
  }
  return text;
}

}  // namespace remora::config
