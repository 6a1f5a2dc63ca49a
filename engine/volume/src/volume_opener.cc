#include "volume_opener.h"

#include <new>
#include <utility>

namespace remora::volume::detail {

namespace {

constexpr Operation kOpen{"open volume"};

Error stale() noexcept { return Error{Code::kStaleRegion, kOpen}.with_reason(Reason::kNewMemory); }

}  // namespace

Status VolumeOpener::check() const {
  const VolumeRecord& volume = layout_.volume;
  if (volume.kind != Kind::kStriped)
    return Error{Code::kUnsupported, kOpen}.with_subject(
        volume.name + ", a mirror: it is opened with its cluster, whose store it asks");
  if (options_.transport == TransportKind::kShm)
    return Error{Code::kUnsupported, kOpen}.with_subject(
        volume.name + ", transport=shm: members are opened over rdma or tcp");
  if (layout_.groups.size() != volume.group_count())
    return Error{Code::kProtocol, kOpen}.with_subject(volume.name + ", the number of its groups");
  return {};
}

Result<Region> VolumeOpener::open_member(const Member& member) {
  const auto uri = finder_.find(member, layout_.addresses_of(member));
  if (!uri) return uri.error();
  return finder_.checked(engine_.open_region(*uri, options_.rights), member,
                         layout_.volume.group_bytes);
}

Result<Region> VolumeOpener::open_group(const GroupRecord& group) {
  if (group.lost || group.members.empty()) return stale();
  return open_member(group.members.front());
}

Result<std::shared_ptr<VolumeCore>> VolumeOpener::open() {
  if (const Status checked = check(); !checked) return checked.error();
  const auto map = StripeMap::of(layout_.volume);
  if (!map) return map.error();
  std::vector<Region> regions;
  std::vector<OpenMember> members;
  for (const GroupRecord& group : layout_.groups) {
    auto region = open_group(group);
    OpenMember member;
    if (!group.members.empty())
      member = {.server = group.members.front().server, .region = group.members.front().region};
    if (!region) {
      const Error named =
          region.error().with_subject(layout_.volume.name + ", group " +
                                      std::to_string(group.index) + ", member " + member.server);
      if (!options_.partial) return named;
      member.error = named;
    }
    regions.push_back(region ? std::move(*region) : Region{nullptr});
    members.push_back(std::move(member));
  }
  return std::make_shared<VolumeCore>(layout_.volume, *map, std::move(regions), std::move(members),
                                      options_, VolumeMetrics::of(engine_.registry()),
                                      layout_.revision);
}

}  // namespace remora::volume::detail
