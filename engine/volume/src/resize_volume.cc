#include <algorithm>
#include <utility>
#include <vector>

#include <remora/volume/management.h>

#include "decided_commit.h"
#include "make_member.h"
#include "member_servers.h"
#include "volume_builder.h"

namespace remora::volume {
namespace {

tl::unexpected<Failure> changed(std::string_view name) {
  return failure(Error{Code::kBusy, "volume that another client changes"}.with_subject(name));
}

/// The regions of groups that an interrupted growth has left. Their keys are overwritten.
void remove_regions(MemberServers& servers, const VolumeLayout& layout) {
  for (const GroupRecord& group : layout.extra_groups)
    for (const Member& member : group.members) {
      const auto session = servers.connect(member.server, layout.addresses_of(member));
      // One that stays is found by its name when the volume is removed.
      if (session) static_cast<void>(session->remove_region(member.region));
    }
}

/// The properties of a region of the volume's first group, for its new ones.
Managed<RegionSpec> spec_of(MemberServers& servers, const VolumeLayout& layout) {
  Managed<RegionSpec> spec =
      failure(Error{Code::kStaleRegion, "resize volume"}.with_subject(layout.volume.name),
              "its first group is lost");
  for (const Member& member : layout.groups.front().members) {
    const auto session = servers.connect(member.server, layout.addresses_of(member));
    const auto region =
        session ? session->stat(member.region) : Result<RegionInfo>{session.error()};
    if (region) return properties_of(*region);
    spec = failure(region.error(), "server " + member.server);
  }
  return spec;
}

/// The servers of the last row's groups, as indices into `servers`.
std::vector<std::vector<std::size_t>> last_row(const VolumeLayout& layout,
                                               const std::vector<ServerRecord>& servers) {
  std::vector<std::vector<std::size_t>> sets;
  for (std::size_t i = layout.groups.size() - layout.volume.width; i < layout.groups.size(); ++i) {
    std::vector<std::size_t>& set = sets.emplace_back();
    for (const Member& member : layout.groups[i].members)
      for (std::size_t at = 0; at < servers.size(); ++at)
        if (servers[at].name == member.server) set.push_back(at);
  }
  return sets;
}

/// What is to be added.
Managed<VolumeRecord> grown_record(const VolumeLayout& layout, std::uint64_t size_bytes) {
  VolumeRecord grown = layout.volume;
  if (size_bytes < grown.size_bytes || size_bytes % grown.block_bytes != 0)
    return failure(
        Error{Code::kInvalidArgument, "resize volume"}.with_limit(size_bytes, grown.size_bytes),
        "a volume only grows, by a multiple of its block of " + std::to_string(grown.block_bytes) +
            " bytes");
  if (!layout.live_writer.empty())
    return failure(
        Error{Code::kBusy, "volume with a claimed writer"}.with_subject(grown.name),
        layout.live_writer + " has the claim: end that program, grow, and start it again");
  grown.size_bytes = size_bytes;
  // The first condition keeps group_count() from overflowing.
  if (size_bytes > kGroupBytesMax * kGroupsMax || grown.group_count() > kGroupsMax)
    return failure(Error{Code::kLimitExceeded, "groups of a volume"}.with_limit(grown.group_count(),
                                                                                kGroupsMax));
  return grown;
}

}  // namespace

Managed<VolumeRecord> resize_volume(const Cluster& cluster, const Engine& engine,
                                    std::string_view name, std::uint64_t size_bytes,
                                    const Progress& progress) {
  auto layout = cluster.layout(name);
  if (!layout) return failure(layout.error());
  auto record = grown_record(*layout, size_bytes);
  if (!record) return record;
  VolumeRecord& grown = *record;
  const std::uint64_t first = layout->volume.group_count();

  // With this change the volume is ours: a later change of another client ends what follows.
  VolumeRecord taken = layout->volume;
  taken.nonce = random_number();
  const std::string key = cluster.keys().volume(name);
  std::string value = to_json(taken);
  VolumeBuilder builder{cluster, engine, layout->generation};
  const auto begun = commit_decided(
      cluster, {builder.conditions(grown.name, layout->volume_value), {{key, value, kNoLease}}});
  if (!begun) return failure(begun.error());
  if (!*begun) return changed(name);

  MemberServers servers{engine};
  remove_regions(servers, *layout);
  const auto grow = [&]() -> Managed<void> {
    if (grown.group_count() == first) return {};
    const std::vector<ServerRecord> to = layout->servers_for_members();
    const Placement placement = place(to, {.groups = grown.group_count() - first,
                                           .group_bytes = region_bytes_of(grown),
                                           .width = grown.width,
                                           .copies = grown.copies,
                                           .allow_same_domain = grown.allow_same_domain,
                                           .above = last_row(*layout, to)});
    if (!placement.fits())
      return failure(
          Error{Code::kLimitExceeded, "room for a volume"}.with_subject(placement.missing()),
          placement.missing());
    const auto spec = spec_of(servers, *layout);
    if (!spec) return tl::unexpected<Failure>{spec.error()};
    if (auto made = builder.make_regions(grown, first, to, placement, *spec, progress); !made)
      return made;
    return builder.write_groups(grown, value);
  };
  Managed<void> done = grow();
  if (done) {
    grown.nonce = random_number();
    const auto applied = commit_decided(
        cluster, {builder.conditions(grown.name, value), {{key, to_json(grown), kNoLease}}});
    if (applied && *applied) return grown;
    done = applied ? changed(name) : failure(applied.error());
  }
  Failure failed = done.error();
  if (const std::string left = builder.undo(taken, value); !left.empty())
    failed.detail.append(failed.detail.empty() ? "" : "; ").append(left);
  return tl::unexpected<Failure>{std::move(failed)};
}

}  // namespace remora::volume
