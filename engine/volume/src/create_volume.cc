#include <algorithm>
#include <bit>
#include <utility>

#include <remora/config/server_config.h>
#include <remora/config/units.h>
#include <remora/volume/management.h>

#include "decided_commit.h"
#include "make_member.h"
#include "volume_builder.h"

namespace remora::volume {
namespace {

Error wrong(std::string_view what) {
  return Error{Code::kInvalidArgument, "create volume"}.with_subject(what);
}

std::uint64_t rounded_up(std::uint64_t number, std::uint64_t step) {
  return (number + step - 1) / step * step;
}

bool in_range(std::uint64_t number, std::uint64_t min, std::uint64_t max) {
  return std::has_single_bit(number) && number >= min && number <= max;
}

/// The record of `spec` for so many servers.
Managed<VolumeRecord> record_of(const VolumeSpec& spec, std::size_t servers) {
  if (!config::is_region_name(spec.name))
    return failure(wrong("name"), "a volume's name has 1 to 64 of A-Z a-z 0-9 . _ -");
  if (spec.kind == Kind::kStriped ? spec.copies != 1 : spec.copies < 2 || spec.copies > kCopiesMax)
    return failure(wrong("copies"), "a striped volume has 1 copy, a mirror 2 to " +
                                        std::to_string(kCopiesMax) + " copies");
  constexpr std::uint64_t kBlockMax = std::uint64_t{16} << 20U;
  if (!in_range(spec.stripe_bytes, kStripeBytesMin, kGroupBytesMax))
    return failure(wrong("stripe unit"), "a stripe unit is a power of two from 4 KiB to 1 GiB");
  if (!in_range(spec.block_bytes, 64, std::min(kBlockMax, spec.stripe_bytes)))
    return failure(wrong("block"),
                   "a block is a power of two from 64 B to the stripe unit, 16 MiB at most");
  if (spec.size_bytes == 0 || spec.size_bytes % spec.block_bytes != 0)
    return failure(wrong("size"), "the size is a positive multiple of the block");
  if (spec.size_bytes > kGroupBytesMax * kGroupsMax)
    return failure(Error{Code::kLimitExceeded, "size of a volume"}.with_limit(
                       spec.size_bytes, kGroupBytesMax * kGroupsMax),
                   "a volume has 16 TiB at most");
  if (spec.width > kWidthMax)
    return failure(wrong("width"), "a row has 1 to " + std::to_string(kWidthMax) + " groups");
  VolumeRecord record;
  record.name = spec.name;
  record.id = random_number();
  record.state = VolumeState::kCreating;
  record.kind = spec.kind;
  record.copies = spec.copies;
  record.allow_same_domain = spec.allow_same_domain;
  record.size_bytes = spec.size_bytes;
  record.block_bytes = spec.block_bytes;
  record.stripe_bytes = spec.stripe_bytes;
  const auto usual = std::min<std::size_t>(kWidthDefault, std::max<std::size_t>(servers, 1));
  record.width = spec.width != 0 ? spec.width : static_cast<std::uint32_t>(usual);
  const std::uint64_t of_one_row =
      rounded_up((spec.size_bytes + record.width - 1) / record.width, spec.stripe_bytes);
  record.group_bytes =
      spec.group_bytes != 0
          ? spec.group_bytes
          : std::min(std::max(of_one_row, rounded_up(kGroupBytesMin, spec.stripe_bytes)),
                     std::max(kGroupBytesDefault, spec.stripe_bytes));
  if (record.group_bytes < kGroupBytesMin || record.group_bytes > kGroupBytesMax ||
      record.group_bytes % record.stripe_bytes != 0)
    return failure(wrong("group"), "a group is a multiple of the stripe unit, from 1 MiB to 1 GiB");
  if (record.group_count() > kGroupsMax)
    return failure(Error{Code::kLimitExceeded, "groups of a volume"}.with_limit(
                       record.group_count(), kGroupsMax),
                   "take larger groups");
  record.nonce = random_number();
  return record;
}

Failure not_enough_room(const Placement& placement) {
  return {Error{Code::kLimitExceeded, "room for a volume"}.with_subject(placement.missing()),
          placement.missing()};
}

/// The server of an unknown name; empty: all are registered.
std::string unknown_server(const std::vector<std::string>& wanted,
                           const std::vector<ServerRecord>& servers) {
  for (const std::string& name : wanted)
    if (std::none_of(servers.begin(), servers.end(),
                     [&](const ServerRecord& each) { return each.name == name; }))
      return name;
  return {};
}

/// The volume's key exists, as "creating". Makes all else, and makes it "ready".
Managed<VolumeRecord> complete(const Cluster& cluster, VolumeBuilder& builder,
                               const VolumeRecord& creating, const VolumeSpec& spec,
                               const std::vector<ServerRecord>& servers, const Placement& placement,
                               const Progress& progress) {
  RegionSpec region;
  region.atomic_domain = spec.atomic_domain;
  region.access = spec.access;
  const std::string value = to_json(creating);
  if (auto made = builder.make_regions(creating, 0, servers, placement, region, progress); !made)
    return tl::unexpected<Failure>{made.error()};
  if (auto written = builder.write_groups(creating, value); !written)
    return tl::unexpected<Failure>{written.error()};
  VolumeRecord ready = creating;
  ready.state = VolumeState::kReady;
  ready.nonce = random_number();
  const auto applied =
      commit_decided(cluster, {builder.conditions(creating.name, value),
                               {{cluster.keys().volume(creating.name), to_json(ready), kNoLease}}});
  if (!applied) return failure(applied.error());
  if (!*applied)
    return failure(
        Error{Code::kBusy, "volume that another client changes"}.with_subject(creating.name));
  return ready;
}

}  // namespace

Managed<VolumeRecord> create_volume(const Cluster& cluster, const Engine& engine,
                                    const VolumeSpec& spec, const Progress& progress) {
  const auto servers = cluster.servers_for_members();
  if (!servers) return failure(servers.error());
  if (const std::string name = unknown_server(spec.servers, *servers); !name.empty())
    return failure(Error{Code::kNotFound, "server of a cluster"}.with_subject(name),
                   "'remora cluster status' lists those that are registered, and those that are "
                   "drained");
  auto record = record_of(spec, spec.servers.empty() ? servers->size() : spec.servers.size());
  if (!record) return record;
  const Placement placement = place(*servers, {.groups = record->group_count(),
                                               .group_bytes = region_bytes_of(*record),
                                               .width = record->width,
                                               .copies = record->copies,
                                               .allow_same_domain = spec.allow_same_domain,
                                               .servers = spec.servers});
  if (!placement.fits()) return tl::unexpected<Failure>{not_enough_room(placement)};
  const auto generation = cluster.generation();
  if (!generation) return failure(generation.error());

  const std::string key = cluster.keys().volume(record->name);
  std::string value = to_json(*record);
  const auto begun = commit_decided(
      cluster,
      {{cluster.generation_is(*generation), {key, std::nullopt}}, {{key, value, kNoLease}}});
  if (!begun)
    return failure(begun.error(),
                   "if 'remora volume ls' shows it as being created, 'remora volume "
                   "rm' clears it");
  if (!*begun)
    return failure(Error{Code::kAlreadyExists, "create volume"}.with_subject(record->name));
  VolumeBuilder builder{cluster, engine, *generation};
  auto ready = complete(cluster, builder, *record, spec, *servers, placement, progress);
  if (ready) return ready;
  const std::string creating = value;
  std::string left = builder.undo(*record, value);
  // The key stays while there may be regions: by the id in it the volume's removal finds them.
  if (builder.left_regions()) {
    if (left.empty()) left = "left behind: perhaps a region";
  } else if (value != creating) {
    const auto removed = commit_decided(
        cluster, {builder.conditions(record->name, value), {{key, std::nullopt, kNoLease}}});
    if (!removed) left.append(left.empty() ? "left behind: " : ", ").append("the volume's key");
  }
  Failure failed = ready.error();
  if (!left.empty())
    failed.detail.append(failed.detail.empty() ? "" : "; ")
        .append(left)
        .append(
            ": 'remora volume stat' shows whether the volume is there, and 'remora volume rm' "
            "clears it");
  return tl::unexpected<Failure>{std::move(failed)};
}

}  // namespace remora::volume
