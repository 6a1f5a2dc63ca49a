#pragma once

/// The server's place in a cluster. cluster.cc has these functions; in a program that is built
/// without volumes without_volumes.cc stands in its place (CMakeLists.txt).

#include <memory>
#include <string_view>

#include <remora/config/server_config.h>
#include <remora/engine/server.h>
#include <remora/result.h>

namespace remora::apps {

/// Why this program does not start with the configuration's `cluster`; empty: it does.
[[nodiscard]] std::string_view cluster_fault(const config::ServerConfig& configuration) noexcept;

/// Registers the server for as long as the object is there; null without `cluster` in the
/// configuration. `server` outlives the object. Errors: those of ClusterMember::start().
[[nodiscard]] Result<std::shared_ptr<void>> join_cluster(const config::ServerConfig& configuration,
                                                         const Server& server);

}  // namespace remora::apps
