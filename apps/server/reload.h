#pragma once

#include <string>

#include <remora/config/server_config.h>
#include <remora/engine/server.h>

namespace remora::apps {

/// Applies the keys of the file that a running server can change (config::reload_rules()):
/// `log.level`, most of `limits` and, if the server and the file have `auth: keys`, all of
/// `clients`. Logs the changes and the keys that need a restart, and tells the service manager. If
/// the file has faults or cannot be read, that is logged and nothing changes. `running`: the
/// present configuration of the server, which is updated. Never throws. Blocks while files are read
/// and sessions of clients that have gone are ended.
void reload(const std::string& file, config::ServerConfig& running, const Server& server) noexcept;

}  // namespace remora::apps
