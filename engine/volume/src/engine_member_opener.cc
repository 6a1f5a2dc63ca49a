#include "engine_member_opener.h"

#include <algorithm>
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

Result<std::string> EngineMemberOpener::find(const Member& member) {
  const auto now = std::chrono::steady_clock::now();
  if (!finder_ || now - looked_ > kRemembered) {
    finder_.emplace(engine_, transport_);
    looked_ = now;
    // Without a store the addresses that the member was made with have to do.
    if (auto servers = cluster_.servers()) servers_ = std::move(*servers);
  }
  const auto record = std::find_if(servers_.begin(), servers_.end(), [&](const ServerRecord& each) {
    return each.name == member.server;
  });
  return finder_->find(member, record == servers_.end() ? member.addresses : record->addresses);
}

Result<std::shared_ptr<MirrorMember>> EngineMemberOpener::made(Result<Region> region,
                                                               const Member& member) {
  auto checked = finder_->checked(std::move(region), member, size_bytes_);
  if (!checked) return checked.error();
  return std::shared_ptr<MirrorMember>{std::make_shared<RegionMember>(std::move(*checked), limit_)};
}

Result<std::shared_ptr<MirrorMember>> EngineMemberOpener::open(const Member& member) {
  const MutexLock lock{mutex_};
  const auto uri = find(member);
  if (!uri) return uri.error();
  return made(engine_.open_region(*uri, rights_), member);
}

Result<std::shared_ptr<MirrorMember>> EngineMemberOpener::fence(const Member& member) {
  const MutexLock lock{mutex_};
  const auto uri = find(member);
  if (!uri) return uri.error();
  return made(engine_.fence_region(*uri, rights_), member);
}

}  // namespace remora::volume::detail
