#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <remora/volume/management.h>

#include "decided_commit.h"
#include "member_servers.h"
#include "volume_builder.h"

namespace remora::volume {
namespace {

/// All servers that may have regions of the volume: those of its members, and, since an interrupted
/// creation has no members yet, all that are registered.
std::map<std::string, std::vector<std::string>> servers_of(const VolumeLayout& layout) {
  std::map<std::string, std::vector<std::string>> servers;
  for (const ServerRecord& server : layout.servers) servers[server.name] = server.addresses;
  for (const auto* groups : {&layout.groups, &layout.extra_groups})
    for (const GroupRecord& group : *groups)
      for (const Member& member : group.members)
        servers.try_emplace(member.server, member.addresses);
  return servers;
}

bool has_member(const VolumeLayout& layout, std::string_view server) {
  const auto there = [&](const std::vector<GroupRecord>& groups) {
    return std::any_of(groups.begin(), groups.end(), [&](const GroupRecord& group) {
      return std::any_of(group.members.begin(), group.members.end(),
                         [&](const Member& member) { return member.server == server; });
    });
  };
  return there(layout.groups) || there(layout.extra_groups);
}

/// Before anything is changed: a volume that is open stays as it is, and so does one whose regions
/// this client may not remove. A server tells a client without rights that there is no such region.
Managed<void> check_removable(MemberServers& sessions, const VolumeLayout& layout,
                              const RemoveOptions& options) {
  std::map<std::string, std::map<std::string, std::uint64_t>> opened;  // by server and region
  for (const auto* groups : {&layout.groups, &layout.extra_groups})
    for (const GroupRecord& group : *groups)
      for (const Member& member : group.members) {
        const auto session = sessions.connect(member.server, layout.addresses_of(member));
        if (!session || session->server().memory_id != member.memory_id) continue;
        if (!opened.contains(member.server)) {
          const auto regions = session->regions();
          if (!regions) return failure(regions.error(), "server " + member.server);
          for (const RegionInfo& region : *regions)
            opened[member.server][region.name] = region.open_count;
          opened[member.server].try_emplace(std::string{});  // also without a region
        }
        const auto& there = opened[member.server];
        const auto found = there.find(member.region);
        if (found == there.end() && groups == &layout.groups && !options.forget_unreachable)
          return failure(
              Error{Code::kUnknownRegion, "remove volume"}.with_subject(member.region),
              "server " + member.server +
                  " shows no such region: this client has no right to it, or it was removed by "
                  "hand; --forget-unreachable goes on without it");
        if (found != there.end() && found->second != 0 && !options.while_open)
          return failure(Error{Code::kBusy, "remove volume"}.with_subject(member.region),
                         "a client has it open on server " + member.server +
                             "; nothing was changed, and --now removes it");
      }
  return {};
}

Managed<void> remove_regions_on(const Session& session, const std::string& server,
                                std::string_view prefix, bool while_open, bool& any) {
  const auto regions = session.regions();
  if (!regions) return failure(regions.error(), "server " + server);
  for (const RegionInfo& region : *regions) {
    if (!region.name.starts_with(prefix)) continue;
    const Status removed =
        session.remove_region(region.name, while_open ? Removal::kNow : Removal::kIfUnused);
    const Code code = removed ? Code::kUnknownRegion : removed.error().code();
    any = any || (code != Code::kBusy && code != Code::kNoRight);  // without an answer, perhaps
    if (code != Code::kUnknownRegion)
      return failure(removed.error(), "region " + region.name + " on server " + server);
  }
  return {};
}

/// `any`: whether one may have been removed.
Managed<void> remove_regions_of(MemberServers& sessions, const VolumeLayout& layout,
                                const RemoveOptions& options, const Progress& progress, bool& any) {
  const std::string prefix = region_prefix(layout.volume.id);
  const auto servers = servers_of(layout);
  std::uint64_t done = 0;
  for (const auto& [server, addresses] : servers) {
    const auto session = sessions.connect(server, addresses);
    if (session) {
      if (auto removed = remove_regions_on(*session, server, prefix, options.while_open, any);
          !removed)
        return removed;
    } else if (!options.forget_unreachable && has_member(layout, server)) {
      return failure(session.error(),
                     "server " + server +
                         ", which has a part of the volume: start it, or let --forget-unreachable "
                         "forget its part");
    }
    if (progress) progress(++done, servers.size());
  }
  return {};
}

}  // namespace

Managed<void> remove_volume(const Cluster& cluster, const Engine& engine, std::string_view name,
                            const RemoveOptions& options, const Progress& progress) {
  auto layout = cluster.remains(name);
  if (!layout) return failure(layout.error());
  MemberServers sessions{engine};
  if (layout->volume.state == VolumeState::kReady)  // of another, some regions are gone already
    if (auto checked = check_removable(sessions, *layout, options); !checked) return checked;
  VolumeRecord removing = layout->volume;
  removing.state = VolumeState::kRemoving;
  removing.nonce = random_number();
  const std::string key = cluster.keys().volume(name);
  const std::string value = to_json(removing);
  const Compare generation = cluster.generation_is(layout->generation);
  const auto begun = commit_decided(
      cluster, {{generation, {key, layout->volume_value}}, {{key, value, kNoLease}}});
  if (!begun) return failure(begun.error());
  if (!*begun)
    return failure(Error{Code::kBusy, "volume that another client changes"}.with_subject(name));

  bool any = layout->volume.state != VolumeState::kReady;
  Managed<void> removed = remove_regions_of(sessions, *layout, options, progress, any);
  if (!removed) {
    VolumeRecord again = layout->volume;
    again.nonce = random_number();
    if (const auto restored = any ? Result<bool>{false}
                                  : commit_decided(cluster, {{generation, {key, value}},
                                                             {{key, to_json(again), kNoLease}}});
        restored && *restored) {
      removed.error().detail.append("; nothing was removed, the volume is as it was");
      return removed;
    }
    removed.error().detail.append(
        "; the volume is marked as being removed: 'remora volume rm' goes "
        "on with it");
    return removed;
  }
  std::vector<std::string> keys;
  for (const auto* groups : {&layout->groups, &layout->extra_groups})
    for (const GroupRecord& group : *groups)
      keys.push_back(cluster.keys().group(name, group.index));
  const std::vector<Compare> conditions{generation, {key, value}};
  if (const Status gone = remove_group_keys(cluster, conditions, keys); !gone)
    return failure(gone.error());
  const auto ended = commit_decided(cluster, {conditions, {{key, std::nullopt, kNoLease}}});
  if (!ended) return failure(ended.error());
  if (!*ended)
    return failure(Error{Code::kBusy, "volume that another client changes"}.with_subject(name));
  return {};
}

}  // namespace remora::volume
