#include "server/reload.h"

#include <spdlog/spdlog.h>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/config/describe.h>
#include <remora/config/load.h>

#include "server/log_level.h"
#include "server/notify.h"

namespace remora::apps {
namespace {

/// The keys that differ and are not among those which are taken, divided by commas.
std::string waiting(const config::ServerConfig& running, const config::ServerConfig& read) {
  std::string found;
  for (const std::string& key : config::differing_keys(running, read)) {
    if (key == "log.level" || key == "clients" || key.starts_with("clients[")) continue;
    found += (found.empty() ? "" : ", ") + key;
  }
  return found;
}

/// What it says stays true until the manager is told READY=1 again.
class Reloading {
 public:
  Reloading() { notify_service_manager("RELOADING=1"); }
  ~Reloading() { notify_service_manager("READY=1"); }
  Reloading(const Reloading&) = delete;
  Reloading& operator=(const Reloading&) = delete;
};

}  // namespace

void reload(const std::string& file, config::ServerConfig& running, const Server& server) {
  const Reloading reloading;
  auto read = config::load_server(file);
  if (!read) {
    std::istringstream faults{read.error().to_string()};
    for (std::string line; std::getline(faults, line);) spdlog::error("{}", line);
    spdlog::error("SIGHUP: {} has faults; nothing was changed", file);
    return;
  }
  for (const std::string& secret : config::exposed_secrets(*read)) spdlog::warn("{}", secret);
  if (running.auth == config::Auth::kKeys && read->auth == config::Auth::kKeys) {
    if (const Status set = server.set_clients(read->clients); !set) {
      spdlog::error("SIGHUP: {}: {}; nothing was changed", file, set.error().message());
      return;
    }
    running.clients = std::move(read->clients);
    spdlog::info("SIGHUP: {} read again: {} clients", file, running.clients.size());
  } else {
    spdlog::info("SIGHUP: {} read again", file);
  }
  if (const std::string keys = waiting(running, *read); !keys.empty())
    spdlog::warn("SIGHUP: changed in {}, but only taken by the next start: {}", file, keys);
  running.log.level = read->log.level;
  spdlog::set_level(level_of(running.log.level));
}

}  // namespace remora::apps
