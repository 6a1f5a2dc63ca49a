#include <nlohmann/json.hpp>
#include <utility>

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
                         "the server has been restarted since: its part of the volume is gone"};
  return std::nullopt;
}

}  // namespace

Managed<VolumeRecord> import_volume(const Cluster& cluster, std::string_view json) {
  auto exported = parse_export(json);
  if (!exported) return tl::unexpected<Failure>{exported.error()};
  const auto servers = cluster.servers();
  if (!servers) return failure(servers.error());
  if (auto stale = stale_member(*exported, *servers)) return tl::unexpected<Failure>{*stale};
  const auto generation = cluster.generation();
  if (!generation) return failure(generation.error());

  VolumeRecord creating = exported->volume;
  creating.state = VolumeState::kCreating;
  creating.nonce = random_number();
  const std::string key = cluster.keys().volume(creating.name);
  const std::string value = to_json(creating);
  const Compare same = cluster.generation_is(*generation);
  const auto begun =
      commit_decided(cluster, {{same, {key, std::nullopt}}, {{key, value, kNoLease}}});
  if (!begun) return failure(begun.error());
  if (!*begun)
    return failure(Error{Code::kAlreadyExists, "import volume"}.with_subject(creating.name));
  const std::string again =
      "'remora volume ls' shows it as being created; import it again after "
      "its key '" +
      key +
      "' is deleted in the store ('remora volume rm' "
      "would also remove its regions)";
  for (std::size_t at = 0; at < exported->groups.size(); at += kGroupsOfImport) {
    Transaction transaction{{same, {key, value}}, {}};
    for (std::size_t i = at; i < std::min(exported->groups.size(), at + kGroupsOfImport); ++i) {
      GroupRecord& group = exported->groups[i];
      group.generation = *generation;
      group.nonce = random_number();
      transaction.changes.push_back(
          {cluster.keys().group(creating.name, group.index), to_json(group), kNoLease});
    }
    const auto applied = commit_decided(cluster, transaction);
    if (!applied) return failure(applied.error(), again);
    if (!*applied)
      return failure(
          Error{Code::kBusy, "volume that another client changes"}.with_subject(creating.name));
  }
  VolumeRecord ready = creating;
  ready.state = VolumeState::kReady;
  ready.nonce = random_number();
  const auto ended =
      commit_decided(cluster, {{same, {key, value}}, {{key, to_json(ready), kNoLease}}});
  if (!ended) return failure(ended.error(), again);
  if (!*ended)
    return failure(
        Error{Code::kBusy, "volume that another client changes"}.with_subject(creating.name));
  return ready;
}

}  // namespace remora::volume
