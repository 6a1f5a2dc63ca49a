#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <remora/volume/management.h>

#include "decided_commit.h"
#include "volume_builder.h"

namespace remora::volume {
namespace {

constexpr std::size_t kGroupsOfImport = 100;

Error no_export(std::string_view what) {
  return Error{Code::kProtocol, "exported volume"}.with_subject(what);
}

struct Exported {
  VolumeRecord volume{};
  std::vector<GroupRecord> groups{};
};

Managed<Exported> parse_export(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("version") || !json.contains("volume") ||
      !json.contains("groups") || !json["groups"].is_array())
    return failure(no_export("no export of a volume"));
  if (json["version"] != kRecordVersion)
    return failure(
        Error{Code::kUnsupported, "version of a cluster's record"}.with_subject("exported volume"));
  auto volume = parse_volume("exported volume", json["volume"].dump());
  if (!volume) return failure(volume.error());
  if (volume->state != VolumeState::kReady)
    return failure(no_export("a volume that was being created or removed"));
  Exported exported{std::move(*volume), {}};
  for (const auto& each : json["groups"]) {
    auto group = parse_group("exported group", each.dump());
    if (!group) return failure(group.error());
    if (group->index != exported.groups.size())
      return failure(no_export("groups that are not in their order"));
    exported.groups.push_back(std::move(*group));
  }
  if (exported.groups.size() != exported.volume.group_count())
    return failure(no_export("a number of groups that is not the volume's"));
  return exported;
}

/// Leaves out members of mirrors whose servers have other memory, but never the last one.
void drop_lost_members(Exported& exported, const std::vector<ServerRecord>& servers) {
  if (exported.volume.kind != Kind::kMirror) return;
  const auto is_lost = [&](const Member& member) {
    return std::any_of(servers.begin(), servers.end(), [&](const ServerRecord& server) {
      return server.name == member.server && server.memory_id != member.memory_id;
    });
  };
  for (GroupRecord& group : exported.groups) {
    std::vector<Member> kept = group.members;
    std::erase_if(kept, is_lost);
    const auto in_sync = std::find_if(kept.begin(), kept.end(), [](const Member& member) {
      return member.state == MemberState::kInSync;
    });
    if (in_sync == kept.end()) continue;
    // A reader may still read a primary that was left out: the next claimant waits for it.
    group.promoting = group.promoting || kept.front() != group.members.front();
    std::rotate(kept.begin(), in_sync, in_sync + 1);
    group.members = std::move(kept);
  }
}

/// The records as they are written. The next claimant of a mirror fences all members and compares
/// their headers (rule 30 of docs/volumes.md), whose generation is that of the export.
void prepare(Exported& exported, std::uint64_t generation) {
  const bool mirror = exported.volume.kind == Kind::kMirror;
  exported.volume.writer.clear();
  for (GroupRecord& group : exported.groups) {
    if (!mirror) group.generation = generation;
    group.restored = mirror;
    group.nonce = random_number();
  }
}

Error changed_during_import(std::string_view name) {
  return Error{Code::kBusy, "volume that another client changes"}.with_subject(name);
}

/// The value of the volume's key, if an import of the same volume was interrupted; empty: there is
/// no such key.
Managed<std::optional<std::string>> interrupted_import(const Cluster& cluster,
                                                       const VolumeRecord& volume) {
  const std::string key = cluster.keys().volume(volume.name);
  const auto entry = get_one(cluster.store(), key, cluster.limit());
  if (!entry) return failure(entry.error());
  if (!*entry) return std::optional<std::string>{};
  const auto there = parse_volume(key, (*entry)->value);
  if (!there) return failure(there.error());
  if (there->state != VolumeState::kImporting || there->id != volume.id)
    return failure(Error{Code::kAlreadyExists, "import volume"}.with_subject(volume.name));
  return std::optional{(*entry)->value};
}

/// A member whose server is registered must have the memory of that time.
std::optional<Failure> stale_member(const Exported& exported,
                                    const std::vector<ServerRecord>& servers) {
  for (const GroupRecord& group : exported.groups)
    for (const Member& member : group.members)
      for (const ServerRecord& server : servers)
        if (server.name == member.server && server.memory_id != member.memory_id)
          return Failure{Error{Code::kStaleRegion, "import volume"}.with_subject(
                             exported.volume.name + ", group " + std::to_string(group.index) +
                             ", server " + server.name),
                         exported.volume.kind == Kind::kMirror
                             ? "the server has been restarted since: this copy is gone; if the "
                               "others are newer or as new, --drop-lost-members leaves it out"
                             : "the server has been restarted since: its part of the volume is "
                               "gone"};
  return std::nullopt;
}

}  // namespace

Managed<VolumeRecord> import_volume(const Cluster& cluster, std::string_view json,
                                    const ImportOptions& options) {
  auto exported = parse_export(json);
  if (!exported) return tl::unexpected<Failure>{exported.error()};
  const auto servers = cluster.servers();
  if (!servers) return failure(servers.error());
  if (options.drop_lost_members) drop_lost_members(*exported, *servers);
  if (auto stale = stale_member(*exported, *servers)) return tl::unexpected<Failure>{*stale};
  const auto generation = cluster.generation();
  if (!generation) return failure(generation.error());
  prepare(*exported, *generation);

  VolumeRecord importing = exported->volume;
  importing.state = VolumeState::kImporting;
  importing.nonce = random_number();
  const std::string key = cluster.keys().volume(importing.name);
  const std::string value = to_json(importing);
  const Compare same = cluster.generation_is(*generation);
  const auto before = interrupted_import(cluster, importing);
  if (!before) return tl::unexpected<Failure>{before.error()};
  const auto begun = commit_decided(cluster, {{same, {key, *before}}, {{key, value, kNoLease}}});
  if (!begun) return failure(begun.error());
  if (!*begun)
    return failure(Error{Code::kAlreadyExists, "import volume"}.with_subject(importing.name));
  const std::string again = "repeat the import: it goes on";
  for (std::size_t at = 0; at < exported->groups.size(); at += kGroupsOfImport) {
    Transaction transaction{{same, {key, value}}, {}};
    for (std::size_t i = at; i < std::min(exported->groups.size(), at + kGroupsOfImport); ++i) {
      const GroupRecord& group = exported->groups[i];
      transaction.changes.push_back(
          {cluster.keys().group(importing.name, group.index), to_json(group), kNoLease});
    }
    const auto applied = commit_decided(cluster, transaction);
    if (!applied) return failure(applied.error(), again);
    if (!*applied) return failure(changed_during_import(importing.name));
  }
  VolumeRecord ready = importing;
  ready.state = VolumeState::kReady;
  ready.nonce = random_number();
  const auto ended =
      commit_decided(cluster, {{same, {key, value}}, {{key, to_json(ready), kNoLease}}});
  if (!ended) return failure(ended.error(), again);
  if (!*ended) return failure(changed_during_import(importing.name));
  return ready;
}

}  // namespace remora::volume
