#include <algorithm>
#include <utility>

#include <remora/volume/management.h>

#include "decided_commit.h"
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

/// The properties of the volume's first region, for its new ones.
Managed<RegionSpec> spec_of(MemberServers& servers, const VolumeLayout& layout) {
  if (layout.groups.front().members.empty())
    return failure(Error{Code::kStaleRegion, "resize volume"}.with_subject(layout.volume.name),
                   "its first group is lost");
  const Member& member = layout.groups.front().members.front();
  const auto session = servers.connect(member.server, layout.addresses_of(member));
  if (!session) return failure(session.error(), "server " + member.server);
  const auto region = session->stat(member.region);
  if (!region) return failure(region.error(), "server " + member.server);
  RegionSpec spec;
  spec.access = region->access;
  spec.atomic_domain = region->atomic_domain == "cpu" || region->atomic_domain == "none"
                           ? region->atomic_domain
                           : "auto";  // a device, which has another name on other servers
  return spec;
}

}  // namespace

Managed<VolumeRecord> resize_volume(const Cluster& cluster, const Engine& engine,
                                    std::string_view name, std::uint64_t size_bytes,
                                    const Progress& progress) {
  auto layout = cluster.layout(name);
  if (!layout) return failure(layout.error());
  VolumeRecord grown = layout->volume;
  if (size_bytes < grown.size_bytes || size_bytes % grown.block_bytes != 0)
    return failure(
        Error{Code::kInvalidArgument, "resize volume"}.with_limit(size_bytes, grown.size_bytes),
        "a volume only grows, by a multiple of its block of " + std::to_string(grown.block_bytes) +
            " bytes");
  if (grown.kind != Kind::kStriped)
    return failure(Error{Code::kUnsupported, "resize volume"}.with_subject("mirror"));
  grown.size_bytes = size_bytes;
  // The first condition keeps group_count() from overflowing.
  if (size_bytes > kGroupBytesMax * kGroupsMax || grown.group_count() > kGroupsMax)
    return failure(Error{Code::kLimitExceeded, "groups of a volume"}.with_limit(grown.group_count(),
                                                                                kGroupsMax));
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
    const Placement placement = place(layout->servers, {.groups = grown.group_count() - first,
                                                        .group_bytes = grown.group_bytes,
                                                        .width = grown.width,
                                                        .copies = grown.copies});
    if (!placement.fits())
      return failure(
          Error{Code::kLimitExceeded, "room for a volume"}.with_subject(placement.missing()),
          placement.missing());
    const auto spec = spec_of(servers, *layout);
    if (!spec) return tl::unexpected<Failure>{spec.error()};
    if (auto made = builder.make_regions(grown, first, layout->servers, placement, *spec, progress);
        !made)
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
