#include "server/cluster.h"

#include <utility>

#include "server/cluster_member.h"

namespace remora::apps {

std::string_view cluster_fault(const config::ServerConfig& /*configuration*/) noexcept {
  return {};
}

Result<std::shared_ptr<void>> join_cluster(const config::ServerConfig& configuration,
                                           const Server& server) {
  auto member = ClusterMember::start(configuration, server);
  if (!member) return member.error();
  return std::shared_ptr<void>{std::move(*member)};
}

}  // namespace remora::apps
