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
    return Error{Code::kUnsupported, kOpen}.with_subject(volume.name +
                                                         ", a mirror: this version has none");
  if (options_.transport == TransportKind::kShm)
    return Error{Code::kUnsupported, kOpen}.with_subject(
        volume.name + ", transport=shm: members are opened over rdma or tcp");
  if (layout_.groups.size() != volume.group_count())
    return Error{Code::kProtocol, kOpen}.with_subject(volume.name + ", the number of its groups");
  return {};
}

std::string VolumeOpener::uri(const std::string& address, const std::string& region) const {
  std::string text = "remora://" + address;
  if (!region.empty()) text += "/" + region;
  if (options_.transport != TransportKind::kAuto)
    text.append("?transport=").append(to_string(options_.transport));
  return text;
}

/// The first address at which the member's memory is; else the first that answers.
const Result<VolumeOpener::Reached>& VolumeOpener::reach(const Member& member) {
  const std::pair key{member.server, member.memory_id};
  if (const auto known = servers_.find(key); known != servers_.end()) return known->second;
  Result<Reached> reached{Error{Code::kUnreachable, kOpen}.with_subject("no address")};
  const auto is_there = [&] { return reached.ok() && reached->memory_id == member.memory_id; };
  const auto try_all = [&](const std::vector<std::string>& addresses) {
    for (const std::string& address : addresses) {
      if (is_there()) return;
      const auto session = engine_.connect(uri(address, {}));
      if (session && (!reached || session->server().memory_id == member.memory_id))
        reached = Reached{.address = address, .memory_id = session->server().memory_id};
      else if (!session && !reached)
        reached = session.error();
    }
  };
  const std::vector<std::string>& present = layout_.addresses_of(member);
  try_all(present);
  // Another server may have taken the name while this one could not renew its lease.
  if (reached.ok() && present != member.addresses) try_all(member.addresses);
  return servers_.emplace(key, std::move(reached)).first->second;
}

Result<Region> VolumeOpener::open_member(const Member& member) {
  const Result<Reached>& server = reach(member);
  if (!server) return server.error();
  // Checked before: in other memory there is no region of that name.
  if (server->memory_id != member.memory_id) return stale().with_server(server->address);
  auto region = engine_.open_region(uri(server->address, member.region), options_.rights);
  if (!region) return region;
  if (region->info().memory_id != member.memory_id ||
      region->info().incarnation != member.incarnation)
    return stale().with_server(server->address);
  if (region->transport() == TransportKind::kShm)
    return Error{Code::kUnsupported, kOpen}.with_server(server->address);
  if (region->size_bytes() < layout_.volume.group_bytes)
    return Error{Code::kProtocol, kOpen}
        .with_limit(layout_.volume.group_bytes, region->size_bytes())
        .with_server(server->address);
  return region;
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
