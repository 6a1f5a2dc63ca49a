#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <remora/volume/maintenance.h>
#include <remora/volume/placement.h>

#include "claimed_work.h"
#include "decided_commit.h"
#include "make_member.h"
#include "volume_builder.h"

namespace remora::volume {
namespace {

/// Whether each group finds a server; empty: yes.
std::string missing_room(const VolumeLayout& layout, std::uint32_t copies) {
  std::vector<ServerRecord> servers = layout.servers_for_members();
  const std::uint64_t bytes = region_bytes_of(layout.volume);
  for (const GroupRecord& group : layout.groups) {
    ReplacementRequest request{.region_bytes = bytes,
                               .allow_same_domain = layout.volume.allow_same_domain};
    for (const Member& member : group.members) request.kept.push_back(member.server);
    while (request.kept.size() < copies) {
      const auto server = place_replacement(servers, request);
      if (!server)
        return "group " + std::to_string(group.index) +
               ": no server has the room outside the failure domains of its other copies";
      servers[*server].pool_free_bytes -= bytes;
      request.kept.push_back(servers[*server].name);
    }
  }
  return {};
}

}  // namespace

Managed<MaintenanceReport> add_copy(const Cluster& cluster, const Engine& engine,
                                    std::string_view name, const MaintenanceOptions& options) {
  auto layout = cluster.layout(name);
  if (!layout) return failure(layout.error());
  VolumeRecord more = layout->volume;
  if (more.kind != Kind::kMirror)
    return failure(Error{Code::kUnsupported, "add a copy"}.with_subject(name),
                   "a striped volume has one copy of each byte: copy it to a mirror");
  if (more.copies == kCopiesMax)
    return failure(
        Error{Code::kLimitExceeded, "add a copy"}.with_limit(more.copies + 1U, kCopiesMax));
  if (!layout->live_writer.empty()) {
    if (!options.steal)
      return failure(Error{Code::kBusy, "volume with a claimed writer"}.with_subject(name),
                     layout->live_writer + " has the claim");
    // Takes the claim, and releases it.
    auto stolen = detail::with_claim(cluster, engine, name, options,
                                     [](detail::MirrorWork&) { return Managed<void>{}; });
    if (!stolen) return stolen;
    layout = cluster.layout(name);
    if (!layout) return failure(layout.error());
    more = layout->volume;
  }
  ++more.copies;
  if (const std::string text = missing_room(*layout, more.copies); !text.empty())
    return failure(Error{Code::kLimitExceeded, "room for a volume"}.with_subject(text), text);
  more.nonce = random_number();
  const std::string key = cluster.keys().volume(name);
  const auto applied = commit_decided(cluster, {{cluster.generation_is(layout->generation),
                                                 {cluster.keys().writer(name), std::nullopt},
                                                 {key, layout->volume_value}},
                                                {{key, to_json(more), kNoLease}}});
  if (!applied) return failure(applied.error());
  if (!*applied)
    return failure(Error{Code::kBusy, "volume that another client changes"}.with_subject(name));
  auto repaired = repair_volume(cluster, engine, name, options);
  if (!repaired)
    repaired.error()
        .detail.append(repaired.error().detail.empty() ? "" : "; ")
        .append("the volume shall have " + std::to_string(more.copies) +
                " copies: 'remora volume repair' makes those that are missing");
  return repaired;
}

}  // namespace remora::volume
