/// In the place of cluster.cc, in a server that is built without remora::volume
/// (REMORA_BUILD_VOLUMES).

#include "common/without_volumes.h"

#include "server/cluster.h"

namespace remora::apps {

std::string_view cluster_fault(const config::ServerConfig& configuration) noexcept {
  return configuration.cluster.server.empty() ? std::string_view{} : kWithoutVolumes;
}

// cluster_fault() has refused each configuration that has a cluster.
Result<std::shared_ptr<void>> join_cluster(const config::ServerConfig& /*configuration*/,
                                           const Server& /*server*/) {
  return std::shared_ptr<void>{};
}

}  // namespace remora::apps
