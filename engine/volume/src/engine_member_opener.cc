#include "engine_member_opener.h"

#include <utility>

#include "region_member.h"

namespace remora::volume::detail {

using remora::detail::MutexLock;

EngineMemberOpener::EngineMemberOpener(remora::detail::EngineShare engine, const Cluster& cluster,
                                       TransportKind transport, Rights rights,
                                       std::uint64_t size_bytes, std::chrono::nanoseconds limit)
    : engine_{std::move(engine)},
      cluster_{cluster},
      transport_{transport},
      rights_{rights},
      size_bytes_{size_bytes},
      limit_{limit} {}

EngineMemberOpener::FoundServer& EngineMemberOpener::server_of(const Member& member) {
  const MutexLock lock{mutex_};
  return servers_[member.server];
}

Result<std::string> EngineMemberOpener::find(FoundServer& server, const Member& member) {
  const MutexLock lock{server.mutex};
  const auto now = std::chrono::steady_clock::now();
  if (!server.finder || now - server.looked > kRemembered) {
    server.finder.emplace(engine_, transport_);
    server.looked = now;
    server.addresses.clear();
    if (const auto servers = cluster_.servers())
      for (const ServerRecord& each : *servers)
        if (each.name == member.server) server.addresses = each.addresses;
  }
  return server.finder->find(member,
                             server.addresses.empty() ? member.addresses : server.addresses);
}

Result<std::shared_ptr<MirrorMember>> EngineMemberOpener::made(FoundServer& server,
                                                               Result<Region> region,
                                                               const Member& member) {
  const MutexLock lock{server.mutex};
  auto checked = server.finder->checked(std::move(region), member, size_bytes_);
  if (!checked) return checked.error();
  return std::shared_ptr<MirrorMember>{std::make_shared<RegionMember>(std::move(*checked), limit_)};
}

Result<std::shared_ptr<MirrorMember>> EngineMemberOpener::open(const Member& member) {
  FoundServer& server = server_of(member);
  const auto uri = find(server, member);
  if (!uri) return uri.error();
  return made(server, engine_.open_region(*uri, rights_), member);
}

Result<std::shared_ptr<MirrorMember>> EngineMemberOpener::fence(const Member& member) {
  FoundServer& server = server_of(member);
  const auto uri = find(server, member);
  if (!uri) return uri.error();
  return made(server, engine_.fence_region(*uri, rights_), member);
}

}  // namespace remora::volume::detail
