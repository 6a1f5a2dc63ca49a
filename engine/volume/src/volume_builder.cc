#include "volume_builder.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "decided_commit.h"
#include "make_member.h"

namespace remora::volume {
namespace {

constexpr std::size_t kGroupsOfTransaction = 100;

Error changed_meanwhile(std::string_view volume) {
  return Error{Code::kBusy, "volume that another client changes"}.with_subject(volume);
}

}  // namespace

tl::unexpected<Failure> failure(const Error& error, std::string detail) {
  return tl::unexpected<Failure>{Failure{error, std::move(detail)}};
}

std::vector<Compare> VolumeBuilder::conditions(const std::string& volume,
                                               const std::string& volume_value) const {
  return {cluster_.generation_is(generation_),
          {cluster_.keys().writer(volume), std::nullopt},
          {cluster_.keys().volume(volume), volume_value}};
}

Managed<void> VolumeBuilder::make_regions(const VolumeRecord& volume, std::uint64_t first,
                                          const std::vector<ServerRecord>& servers,
                                          const Placement& placement,
                                          const RegionSpec& template_spec,
                                          const Progress& progress) {
  const std::uint64_t all = placement.groups.size() * volume.copies;
  std::uint64_t done = 0;
  for (std::size_t i = 0; i < placement.groups.size(); ++i) {
    GroupRecord& group = groups_.emplace_back();
    group.index = first + i;
    group.generation = generation_;
    group.nonce = random_number();
    for (const std::size_t server : placement.groups[i]) {
      bool left = false;
      auto member = make_member(servers_, servers[server],
                                region_spec_of(volume, group.index, template_spec), left);
      left_regions_ = left_regions_ || left;
      if (!member) return tl::unexpected<Failure>{member.error()};
      group.members.push_back(std::move(*member));
      if (progress) progress(++done, all);
    }
  }
  return {};
}

/// As many groups from `at` on as one transaction holds, with a condition for each of their
/// servers: once a server is drained, no volume gets a member there.
Transaction VolumeBuilder::transaction_of(const VolumeRecord& volume,
                                          const std::string& volume_value, std::size_t at) const {
  Transaction transaction{conditions(volume.name, volume_value), {}};
  const std::size_t servers_max = kTransactionMax - transaction.compares.size();
  std::set<std::string> servers;
  for (std::size_t i = at; i < groups_.size() && i - at < kGroupsOfTransaction; ++i) {
    std::set<std::string> with = servers;
    for (const Member& member : groups_[i].members) with.insert(member.server);
    if (with.size() > servers_max) break;
    servers = std::move(with);
    transaction.changes.push_back(
        {cluster_.keys().group(volume.name, groups_[i].index), to_json(groups_[i]), kNoLease});
  }
  for (const std::string& server : servers)
    transaction.compares.push_back({cluster_.keys().draining(server), std::nullopt});
  return transaction;
}

/// Why such a transaction was refused.
Error VolumeBuilder::why_refused(const std::string& volume) const {
  const auto draining = cluster_.draining();
  if (!draining) return draining.error();
  for (const GroupRecord& group : groups_)
    for (const Member& member : group.members)
      if (std::find(draining->begin(), draining->end(), member.server) != draining->end())
        return Error{Code::kBusy, "server that is drained meanwhile"}.with_subject(member.server);
  return changed_meanwhile(volume);
}

Managed<void> VolumeBuilder::write_groups(const VolumeRecord& volume,
                                          const std::string& volume_value) {
  for (std::size_t at = 0; at < groups_.size();) {
    const Transaction transaction = transaction_of(volume, volume_value, at);
    const auto applied = commit_decided(cluster_, transaction);
    if (!applied) return failure(applied.error());
    if (!*applied) return failure(why_refused(volume.name));
    at += transaction.changes.size();
  }
  return {};
}

Result<std::set<std::string>> VolumeBuilder::regions_in_use(const VolumeRecord& volume) const {
  std::set<std::string> used;
  const auto layout = cluster_.remains(volume.name);
  if (!layout && layout.error().code() == Code::kNotFound) return used;
  if (!layout) return layout.error();
  if (layout->generation != generation_) return Error{Code::kBusy, "generation of a cluster"};
  if (layout->volume.id != volume.id) return used;
  for (const GroupRecord& group : layout->groups)
    for (const Member& member : group.members) used.insert(member.region);
  return used;
}

std::string VolumeBuilder::remove_regions(const std::set<std::string>& used) {
  std::string left;
  std::size_t stay = 0;
  for (const GroupRecord& group : groups_)
    for (const Member& member : group.members) {
      if (used.contains(member.region)) {
        ++stay;
        continue;
      }
      const auto session = servers_.connect(member.server, member.addresses);
      const Status removed =
          session ? session->remove_region(member.region) : Status{session.error()};
      if (removed || removed.error().code() == Code::kUnknownRegion) continue;
      left_regions_ = true;
      left.append(left.empty() ? "left behind: " : ", ")
          .append(member.region)
          .append(" on ")
          .append(member.server);
    }
  if (stay != 0)
    left.append(left.empty() ? "" : "; ")
        .append(std::to_string(stay))
        .append(" new regions stay, since the volume uses them");
  return left;
}

std::string VolumeBuilder::undo(const VolumeRecord& volume, std::string& volume_value) {
  std::string unknown =
      "left behind: all regions, since the store does not tell whether the volume uses them";
  VolumeRecord ours = volume;
  ours.nonce = random_number();
  std::string value = to_json(ours);
  const auto frozen =
      commit_decided(cluster_, {conditions(volume.name, volume_value),
                                {{cluster_.keys().volume(volume.name), value, kNoLease}}});
  if (!frozen) return unknown;
  if (!*frozen) {
    // Another client has changed the volume: no transaction of this one applies any more.
    const auto used = regions_in_use(volume);
    return used ? remove_regions(*used) : unknown;
  }
  volume_value = std::move(value);
  std::string left = remove_regions({});
  std::vector<std::string> keys;
  for (const GroupRecord& group : groups_)
    keys.push_back(cluster_.keys().group(volume.name, group.index));
  const Status removed = remove_group_keys(cluster_, conditions(volume.name, volume_value), keys);
  // After another client's change, the keys are that client's.
  if (!removed && removed.error().code() != Code::kBusy)
    left.append(left.empty() ? "left behind: " : ", ").append("keys of groups in the store");
  return left;
}

Status remove_group_keys(const Cluster& cluster, const std::vector<Compare>& conditions,
                         const std::vector<std::string>& keys) {
  for (std::size_t at = 0; at < keys.size(); at += kGroupsOfTransaction) {
    Transaction transaction{conditions, {}};
    const std::size_t end = std::min(keys.size(), at + kGroupsOfTransaction);
    for (std::size_t i = at; i < end; ++i)
      transaction.changes.push_back({keys[i], std::nullopt, kNoLease});
    const auto applied = commit_decided(cluster, transaction);
    if (!applied) return applied.error();
    if (!*applied) return changed_meanwhile(conditions.back().key);
  }
  return ok_status();
}

}  // namespace remora::volume
