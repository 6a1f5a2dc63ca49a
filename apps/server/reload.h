#pragma once

#include <string>

#include <remora/config/server_config.h>
#include <remora/engine/server.h>

namespace remora::apps {

/// Takes from the file what a running server can take: `clients` (all of it) and `log.level`. Logs
/// what was changed and what waits for the next start. Where the file has faults, they are logged
/// and nothing changes. `running`: what the server goes by, brought up to date. Blocks while files
/// are read and the server's control thread takes the clients.
void reload(const std::string& file, config::ServerConfig& running, const Server& server);

}  // namespace remora::apps
