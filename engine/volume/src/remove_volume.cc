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

/// Whether the keys of all groups are there, by which all regions are known. An interrupted
/// creation has left regions on any server.
bool is_complete(const VolumeLayout& layout) {
  return layout.groups.size() == layout.volume.group_count();
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
    } else if (!options.forget_unreachable &&
               (!is_complete(layout) || has_member(layout, server))) {
      return failure(session.error(),
                     "server " + server +
                         (is_complete(layout) ? ", which has" : ", which may have") +
                         " a part of the volume: start it, or let --forget-unreachable forget its "
                         "part");
    }
    if (progress) progress(++done, servers.size());
  }
  return {};
}

/// How often a removal begins again because another client has changed the volume meanwhile.
constexpr int kMarkRounds = 8;

Error changed_by_another(std::string_view name) {
  return Error{Code::kBusy, "volume that another client changes"}.with_subject(name);
}

/// A volume that this client has marked as being removed.
struct MarkedVolume {
  VolumeRecord before{};
  std::string value{};  ///< of the volume's key: the mark
  Compare generation{};

  /// Conditions of each later transaction: the mark is still there.
  [[nodiscard]] std::vector<Compare> conditions(const std::string& key) const {
    return {generation, {key, value}};
  }
};

/// Changes the volume's key, if it is as it was when the volume was found to be removable.
Managed<MarkedVolume> mark_removed(const Cluster& cluster, MemberServers& sessions,
                                   std::string_view name, const RemoveOptions& options) {
  for (int round = 0; round < kMarkRounds; ++round) {
    auto layout = cluster.remains(name);
    if (!layout) return failure(layout.error());
    if (layout->volume.state == VolumeState::kReady)  // of another, some regions are gone already
      if (auto checked = check_removable(sessions, *layout, options); !checked)
        return tl::unexpected<Failure>{checked.error()};
    VolumeRecord removing = layout->volume;
    removing.state = VolumeState::kRemoving;
    removing.nonce = random_number();
    const std::string key = cluster.keys().volume(name);
    MarkedVolume marked{layout->volume, to_json(removing),
                        cluster.generation_is(layout->generation)};
    const auto begun = commit_decided(cluster, {{marked.generation, {key, layout->volume_value}},
                                                {{key, marked.value, kNoLease}}});
    if (!begun) return failure(begun.error());
    if (*begun) return marked;
  }
  return failure(changed_by_another(name));
}

/// The groups are read after the mark, since no other client can add one from then on: a growth may
/// have written keys between the first read and the mark. `any`: whether something may be gone.
Managed<void> remove_marked(const Cluster& cluster, MemberServers& sessions, std::string_view name,
                            const MarkedVolume& marked, const RemoveOptions& options,
                            const Progress& progress, bool& any) {
  const auto layout = cluster.remains(name);
  if (!layout) return failure(layout.error());
  if (layout->volume_value != marked.value) return failure(changed_by_another(name));
  if (auto removed = remove_regions_of(sessions, *layout, options, progress, any); !removed)
    return removed;
  any = true;
  const std::string key = cluster.keys().volume(name);
  std::vector<std::string> keys;
  for (const auto* groups : {&layout->groups, &layout->extra_groups})
    for (const GroupRecord& group : *groups)
      keys.push_back(cluster.keys().group(name, group.index));
  if (const Status gone = remove_group_keys(cluster, marked.conditions(key), keys); !gone)
    return failure(gone.error());
  const auto ended =
      commit_decided(cluster, {marked.conditions(key), {{key, std::nullopt, kNoLease}}});
  if (!ended) return failure(ended.error());
  if (!*ended) return failure(changed_by_another(name));
  return {};
}

/// Takes the mark back. False: it stays.
bool restore(const Cluster& cluster, std::string_view name, const MarkedVolume& marked) {
  VolumeRecord again = marked.before;
  again.nonce = random_number();
  const std::string key = cluster.keys().volume(name);
  const auto restored =
      commit_decided(cluster, {marked.conditions(key), {{key, to_json(again), kNoLease}}});
  return restored && *restored;
}

}  // namespace

Managed<void> remove_volume(const Cluster& cluster, const Engine& engine, std::string_view name,
                            const RemoveOptions& options, const Progress& progress) {
  MemberServers sessions{engine};
  const auto marked = mark_removed(cluster, sessions, name, options);
  if (!marked) return tl::unexpected<Failure>{marked.error()};
  bool any = marked->before.state != VolumeState::kReady;
  Managed<void> removed = remove_marked(cluster, sessions, name, *marked, options, progress, any);
  if (removed) return removed;
  if (!any && restore(cluster, name, *marked))
    removed.error()
        .detail.append(removed.error().detail.empty() ? "" : "; ")
        .append("nothing was removed, the volume is as it was");
  else
    removed.error()
        .detail.append(removed.error().detail.empty() ? "" : "; ")
        .append("'remora volume rm' goes on with the removal");
  return removed;
}

}  // namespace remora::volume
