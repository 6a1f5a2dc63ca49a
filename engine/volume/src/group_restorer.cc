#include "group_restorer.h"

#include <algorithm>
#include <utility>

#include <remora/config/units.h>

#include "group_changes.h"
#include "make_member.h"
#include "mirror_layout.h"
#include "volume_builder.h"
#include "zone_copier.h"

namespace remora::volume::detail {

using remora::detail::MutexLock;

namespace {

constexpr int kTries = 3;

std::vector<std::string> servers_of_members(const GroupRecord& group, std::string_view without) {
  std::vector<std::string> names;
  for (const Member& member : group.members)
    if (member.region != without) names.push_back(member.server);
  return names;
}

const Member* find_member(const GroupRecord& group, std::string_view region) {
  const auto found = std::find_if(group.members.begin(), group.members.end(),
                                  [&](const Member& each) { return each.region == region; });
  return found == group.members.end() ? nullptr : &*found;
}

std::string name_of_group(const ClaimedVolume& volume, std::uint32_t group) {
  return volume.volume().name + ", group " + std::to_string(group);
}

}  // namespace

GroupRestorer::GroupRestorer(ClaimedVolume& volume, MemberRegions& regions,
                             const VolumeLayout& layout, const MaintenanceOptions& options,
                             CopyPace& pace)
    : volume_{volume},
      regions_{regions},
      layout_{layout},
      options_{options},
      pace_{pace},
      servers_{layout.servers_for_members()} {}

void GroupRestorer::expect_bytes(std::uint64_t bytes) {
  const MutexLock lock{mutex_};
  all_bytes_ += bytes;
}

MaintenanceReport GroupRestorer::report() const {
  const MutexLock lock{mutex_};
  return report_;
}

bool GroupRestorer::lacks_room(const Failure& failure) noexcept {
  return failure.error.code() == Code::kLimitExceeded &&
         failure.error.operation() == "room for a copy";
}

std::uint32_t GroupRestorer::missing(std::uint32_t group) const {
  const std::uint32_t copies = volume_.volume().copies;
  return copies - std::min(copies, in_sync_count(volume_.group(group)));
}

Managed<void> GroupRestorer::restore(std::uint32_t group) {
  while (missing(group) != 0) {
    auto added = add(group, {.kept = servers_of_members(volume_.group(group), {})});
    if (!added) return added;
    const MutexLock lock{mutex_};
    ++report_.members_added;
  }
  return {};
}

Managed<void> GroupRestorer::trim(std::uint32_t group, const std::vector<std::string>& leaving) {
  for (;;) {
    const GroupRecord record = volume_.group(group);
    if (in_sync_count(record) <= volume_.volume().copies) return {};
    const Member* extra = nullptr;
    const Member* leaves = nullptr;
    for (const Member& member : record.members) {  // the last one: the first is the primary
      if (member.state != MemberState::kInSync) continue;
      extra = &member;
      if (std::find(leaving.begin(), leaving.end(), member.server) != leaving.end())
        leaves = &member;
    }
    if (leaves != nullptr) extra = leaves;
    if (auto removed = remove(group, *extra); !removed) return removed;
  }
}

Managed<void> GroupRestorer::move(std::uint32_t group, const std::string& region,
                                  const std::string& target,
                                  const std::vector<std::string>& excluded) {
  const GroupRecord before = volume_.group(group);
  const Member* const leaving = find_member(before, region);
  if (leaving == nullptr) return {};  // it was removed meanwhile
  Wanted wanted{servers_of_members(before, region), excluded, target};
  wanted.excluded.push_back(leaving->server);
  if (auto added = add(group, std::move(wanted)); !added) return added;
  if (auto removed = remove(group, *leaving); !removed) return removed;
  const MutexLock lock{mutex_};
  ++report_.members_moved;
  return {};
}

Managed<void> GroupRestorer::add(std::uint32_t group, Wanted wanted) {
  if (const Status settled = volume_.settle_promotion(group, until()); !settled)
    return failure(settled.error(), name_of_group(volume_, group));
  auto properties = spec_for(group);
  if (!properties) return tl::unexpected<Failure>{properties.error()};
  std::optional<Failure> last;
  for (int round = 0; round < kTries; ++round) {
    const auto server = reserve(wanted);
    if (!server) break;
    auto built = build(group, *server, *properties);
    if (built || built.error().error.code() == Code::kCancelled) return built;
    last = built.error();
    if (!volume_.claimed()) break;
    // The group is busy, or a write to the copy has failed: other groups may use the server.
    if (last->error.code() == Code::kBusy) {
      wanted.excluded.push_back(server->name);
      continue;
    }
    const MutexLock lock{mutex_};
    failed_.insert(server->name);
  }
  if (last) return tl::unexpected<Failure>{*last};
  const std::string room = config::format_size(region_bytes_of(volume_.volume()));
  return failure(
      Error{Code::kLimitExceeded, "room for a copy"}.with_subject(name_of_group(volume_, group)),
      "no server has " + room + " free outside the failure domains of the group's other copies");
}

std::optional<ServerRecord> GroupRestorer::reserve(const Wanted& wanted) {
  ReplacementRequest request{.region_bytes = region_bytes_of(volume_.volume()),
                             .kept = wanted.kept,
                             .excluded = wanted.excluded,
                             .allow_same_domain = volume_.volume().allow_same_domain};
  for (std::uint32_t i = 0; i < volume_.group_count(); ++i)
    if (volume_.group_open(i)) request.sets.push_back(servers_of_members(volume_.group(i), {}));
  const MutexLock lock{mutex_};
  request.excluded.insert(request.excluded.end(), failed_.begin(), failed_.end());
  if (!wanted.target.empty())
    for (const ServerRecord& server : servers_)
      if (server.name != wanted.target) request.excluded.push_back(server.name);
  const auto chosen = place_replacement(servers_, request);
  if (!chosen) return std::nullopt;
  ServerRecord& server = servers_[*chosen];
  server.pool_free_bytes -= std::min(server.pool_free_bytes, request.region_bytes);
  return server;
}

void GroupRestorer::give_back(const std::string& server) {
  const MutexLock lock{mutex_};
  for (ServerRecord& each : servers_)
    if (each.name == server) each.pool_free_bytes += region_bytes_of(volume_.volume());
}

/// The access list of the volume's regions, from one that can be asked.
Managed<RegionSpec> GroupRestorer::spec_for(std::uint32_t group) {
  Managed<RegionSpec> spec = failure(Error{Code::kStaleRegion, "stat"});
  for (const Member& member : volume_.group(group).members) {
    if (member.state != MemberState::kInSync) continue;
    const auto region = regions_.stat(member, layout_.addresses_of(member));
    if (region) return properties_of(*region);
    spec = failure(region.error(), "server " + member.server);
  }
  return spec;
}

Managed<void> GroupRestorer::build(std::uint32_t group, const ServerRecord& server,
                                   const RegionSpec& spec) {
  const auto member = regions_.make(server, region_spec_of(volume_.volume(), group, spec));
  if (!member) {
    give_back(server.name);
    return tl::unexpected<Failure>{member.error()};
  }
  const std::string where =
      name_of_group(volume_, group) + ", new copy on server " + member->server;
  if (const Status added = volume_.add_syncing(group, *member, until()); !added) {
    // Without an answer the group may name it: then the next claim removes it.
    if (added.error().code() != Code::kIndeterminate) give_up(group, *member);
    return failure(added.error(), where);
  }
  tell(group, member->server, VolumeEventKind::kCopyBegun, {});
  auto done = complete(group, *member);
  if (done)
    tell(group, member->server, VolumeEventKind::kCopyDone, {});
  else
    tell(group, member->server, VolumeEventKind::kCopyFailed, done.error().error);
  return done;
}

Managed<void> GroupRestorer::complete(std::uint32_t group, const Member& member) {
  if (auto copied = copy(group, member.server); !copied) {
    give_up(group, member);
    return copied;
  }
  if (const Status done = volume_.make_in_sync(group, until()); !done) {
    if (done.error().code() != Code::kIndeterminate) give_up(group, member);
    return failure(done.error(),
                   name_of_group(volume_, group) + ", new copy on server " + member.server);
  }
  return {};
}

void GroupRestorer::tell(std::uint32_t group, const std::string& server, VolumeEventKind kind,
                         const Status& done) const {
  VolumeEvent event;
  event.kind = kind;
  event.group = group;
  event.server = server;
  if (!done) event.error = done.error();
  volume_.tell(event);
}

Managed<void> GroupRestorer::copy(std::uint32_t group, const std::string& server) {
  ZoneCopier copier{volume_, group, pace_, options_.step_limit,
                    [&](std::uint32_t zones) { count_zone(group, server, zones); }};
  if (const Status copied = copier.run(options_.zones_at_once); !copied)
    return failure(copied.error(), name_of_group(volume_, group) + ", copy to server " + server);
  return {};
}

/// The member did not become in sync. If it cannot be removed, the next claim removes it, and the
/// next repair its region.
void GroupRestorer::give_up(std::uint32_t group, const Member& member) {
  if (find_member(volume_.group(group), member.region) != nullptr &&
      !volume_.remove_member(group, member.region, until()))
    return;
  if (find_member(volume_.group(group), member.region) != nullptr) return;
  static_cast<void>(discard(member));
}

Status GroupRestorer::discard(const Member& member) {
  const Status removed =
      regions_.remove(member.server, layout_.addresses_of(member), member.region);
  if (!removed) return removed;
  give_back(member.server);
  return {};
}

/// Takes a member out, then its region: from the transaction on no client begins anything there.
Managed<void> GroupRestorer::remove(std::uint32_t group, const Member& member) {
  const std::string where = name_of_group(volume_, group) + ", copy on server " + member.server;
  if (const Status removed = volume_.remove_member(group, member.region, until()); !removed)
    return failure(removed.error(), where);
  if (const Status settled = volume_.settle_promotion(group, until()); !settled)
    return failure(settled.error(), where);
  // One that stays is found by its name in the next repair.
  if (!discard(member)) return {};
  const MutexLock lock{mutex_};
  ++report_.regions_removed;
  return {};
}

void GroupRestorer::count_zone(std::uint32_t group, const std::string& server,
                               std::uint32_t zones) {
  const MutexLock lock{mutex_};
  report_.bytes_copied += kZoneBytes;
  if (!options_.progress) return;
  options_.progress({.work = "group " + std::to_string(group) + " on " + server + ", " +
                             std::to_string(zones) + " of " + std::to_string(volume_.zone_count()) +
                             " MiB",
                     .done_bytes = report_.bytes_copied,
                     .all_bytes = std::max(all_bytes_, report_.bytes_copied)});
}

}  // namespace remora::volume::detail
