#include "server/reload.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/config/describe.h>
#include <remora/config/load.h>
#include <remora/config/printable.h>

#include "server/descriptor_limit.h"
#include "server/log.h"
#include "server/log_level.h"
#include "server/service_manager.h"

namespace remora::apps {
namespace {

bool is_of_clients(std::string_view key) { return key == "clients" || key.starts_with("clients["); }

/// The keys that differ and cannot be applied now; only the first few are named.
std::string waiting(const config::ServerConfig& running, const config::ServerConfig& read,
                    bool clients_are_taken) {
  constexpr std::size_t kMaxNamed = 10;
  std::string found;
  std::size_t count = 0;
  for (const std::string& key : config::differing_keys(running, read)) {
    if (is_of_clients(key) ? clients_are_taken : config::reload_rule(key).taken) continue;
    if (++count <= kMaxNamed) found += (found.empty() ? "" : ", ") + key;
  }
  if (count > kMaxNamed) found += " and " + std::to_string(count - kMaxNamed) + " more";
  return found;
}

/// Applies the limits that can change. Returns a text of the changes; empty: none.
std::string take_limits(const config::Limits& read, config::ServerConfig& running,
                        const Server& server) {
  config::ServerConfig after = running;
  after.limits = config::reloaded(running.limits, read);
  std::string changed;
  for (const std::string& key : config::differing_keys(running, after))
    changed += (changed.empty() ? "; " : ", ") + key;
  if (changed.empty()) return {};
  if (const Status set = server.set_limits(after.limits); !set) {
    const std::string reason = set.error().message();
    log_error("config.not_taken", fmt::format("SIGHUP: limits: {}; none was changed", reason),
              {{"reason", reason}});
    return "; limits were not taken";
  }
  running.limits = after.limits;
  raise_descriptor_limit(running.limits);
  return changed;
}

/// Reports the outcome to the log and to the service manager.
std::string take(const std::string& path, config::ServerConfig& running, const Server& server) {
  auto read = config::load_server(path);
  const std::string file = config::printable(path);
  if (!read) {
    std::istringstream faults{read.error().to_string()};
    for (std::string line; std::getline(faults, line);)
      log_error("config.fault", line, {{"file", file}});
    log_error("config.not_taken", fmt::format("SIGHUP: {} has faults; nothing was changed", file),
              {{"file", file}});
    return "the configuration has faults: nothing was read again";
  }
  const auto before = running.log.level;
  // The more verbose of the two levels, so that this line is logged.
  spdlog::set_level(std::min(level_of(before), level_of(read->log.level)));
  for (const std::string& secret : config::exposed_secrets(*read))
    log_warn("config.secret_exposed", secret);
  const bool keys = running.auth == config::Auth::kKeys && read->auth == config::Auth::kKeys;
  if (const std::string names = waiting(running, *read, keys); !names.empty())
    log_warn(
        "config.needs_restart",
        fmt::format("SIGHUP: changed in {}, but only taken by the next start: {}", file, names),
        {{"file", file}, {"keys", names}});
  if (keys) {
    if (const Status set = server.set_clients(read->clients); !set) {
      const std::string reason = set.error().message();
      log_error("config.not_taken",
                fmt::format("SIGHUP: {}: {}; nothing was changed", file, reason),
                {{"file", file}, {"reason", reason}});
      spdlog::set_level(level_of(before));
      return "clients were not taken: nothing was read again";
    }
    running.clients = std::move(read->clients);
  }
  running.log.level = read->log.level;
  std::string told = file + " read again";
  if (keys) told += "; clients: " + std::to_string(running.clients.size());
  told += take_limits(read->limits, running, server);
  if (before != running.log.level)
    told += "; log.level: " + std::string{to_string(running.log.level)};
  log_info("config.taken", "SIGHUP: " + told, {{"file", file}});
  spdlog::set_level(level_of(running.log.level));
  return told;
}

}  // namespace

void reload(const std::string& file, config::ServerConfig& running, const Server& server) noexcept {
  notify_service_manager("RELOADING=1");
  std::string told = "reading again went wrong";
  try {
    told = take(file, running, server);
  } catch (const std::exception& exception) {
    log_error("config.not_taken",
              fmt::format("SIGHUP: {}: {}", config::printable(file), exception.what()),
              {{"file", file}, {"reason", exception.what()}});
  }
  notify_service_manager("READY=1\nSTATUS=" + told);
}

}  // namespace remora::apps
