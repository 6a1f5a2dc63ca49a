#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <remora/config/server_config.h>
#include <remora/volume/maintenance.h>

#include "claimed_work.h"
#include "decided_commit.h"
#include "volume_builder.h"

namespace remora::volume {
namespace {

std::uint64_t members_on(const VolumeLayout& layout, std::string_view server) {
  std::uint64_t count = 0;
  for (const GroupRecord& group : layout.groups)
    count += static_cast<std::uint64_t>(
        std::count_if(group.members.begin(), group.members.end(),
                      [&](const Member& each) { return each.server == server; }));
  return count;
}

Managed<void> set_mark(const Cluster& cluster, std::string_view server, bool marked) {
  const std::string key = cluster.keys().draining(server);
  const std::string value = nlohmann::ordered_json{{"version", kRecordVersion}}.dump();
  const auto done = commit_decided(
      cluster, {{}, {{key, marked ? std::optional{value} : std::nullopt, kNoLease}}});
  if (!done) return failure(done.error());
  return {};
}

/// Empties the server of one volume. `found`: whether it had a member there. An Error only where
/// the whole drain ends.
Managed<void> drain_volume(const Cluster& cluster, const Engine& engine, const VolumeRecord& volume,
                           const std::string& server, const MaintenanceOptions& options,
                           MaintenanceReport& report, bool& found) {
  const auto layout = cluster.remains(volume.name);
  if (!layout && layout.error().code() == Code::kNotFound) return {};  // removed meanwhile
  if (!layout) return failure(layout.error());
  const std::uint64_t members = members_on(*layout, server);
  if (members == 0) return {};
  found = true;
  const std::string what = "volume " + volume.name + " has " + std::to_string(members) +
                           (members == 1 ? " member" : " members") + " on " + server;
  if (volume.kind == Kind::kStriped) {
    report.left.push_back(what +
                          ", and no other copy of their bytes: copy it to a volume elsewhere, and "
                          "remove it");
    return {};
  }
  if (layout->volume.state != VolumeState::kReady) {
    report.left.push_back(what + ", and is " + std::string{to_string(layout->volume.state)});
    return {};
  }
  const auto done = detail::with_claim(cluster, engine, volume.name, options,
                                       [&](detail::MirrorWork& work) -> Managed<void> {
                                         if (auto restored = work.restore_copies(); !restored)
                                           return restored;
                                         return work.empty_server(server);
                                       });
  if (done) {
    detail::add(report, *done);
  } else if (done.error().error.code() == Code::kCancelled) {
    return tl::unexpected<Failure>{done.error()};
  } else {
    report.left.push_back(what + ": " + detail::describe(done.error()));
  }
  return {};
}

}  // namespace

Managed<MaintenanceReport> drain_server(const Cluster& cluster, const Engine& engine,
                                        std::string_view server,
                                        const MaintenanceOptions& options) {
  const std::string name{server};
  if (!config::is_region_name(name))
    return failure(Error{Code::kInvalidArgument, "drain server"}.with_subject(name),
                   "a server's name has 1 to 64 of A-Z a-z 0-9 . _ -");
  const auto servers = cluster.servers();
  if (!servers) return failure(servers.error());
  bool found = std::any_of(servers->begin(), servers->end(),
                           [&](const ServerRecord& each) { return each.name == name; });
  if (auto marked = set_mark(cluster, server, true); !marked)
    return tl::unexpected<Failure>{marked.error()};
  const auto volumes = cluster.volumes();
  if (!volumes) return failure(volumes.error());
  MaintenanceReport report;
  for (const VolumeRecord& volume : *volumes)
    if (auto drained = drain_volume(cluster, engine, volume, name, options, report, found);
        !drained)
      return tl::unexpected<Failure>{drained.error()};
  if (found) return report;
  // A name that was mistyped.
  if (auto unmarked = set_mark(cluster, server, false); !unmarked)
    return tl::unexpected<Failure>{unmarked.error()};
  return failure(Error{Code::kNotFound, "server of a cluster"}.with_subject(name),
                 "it is not registered, and no volume has a member on it: 'remora cluster status' "
                 "lists the servers");
}

Managed<void> end_drain_server(const Cluster& cluster, std::string_view server) {
  return set_mark(cluster, server, false);
}

}  // namespace remora::volume
