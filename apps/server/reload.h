#pragma once

#include <string>

#include <remora/config/server_config.h>
#include <remora/engine/server.h>

namespace remora::apps {

/// Takes from the file what a running server can take (config::reload_rules()): `log.level`, most
/// of `limits` and, where the server and the file have `auth: keys`, all of `clients`. Logs what
/// was changed and what waits for the next start, and tells the service manager. Where the file has
/// faults or cannot be read, that is logged and nothing changes. `running`: what the server goes
/// by, brought up to date. Never throws. Blocks while files are read and sessions of clients that
/// have gone are ended.
void reload(const std::string& file, config::ServerConfig& running, const Server& server) noexcept;

}  // namespace remora::apps
