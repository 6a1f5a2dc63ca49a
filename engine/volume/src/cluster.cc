#include <algorithm>
#include <utility>

#include <remora/volume/cluster.h>

namespace remora::volume {
namespace {

Error not_ready(const VolumeRecord& volume) {
  if (volume.state == VolumeState::kCreating)
    return Error{Code::kBusy, "volume that is being created"}.with_subject(volume.name);
  if (volume.state == VolumeState::kImporting)
    return Error{Code::kBusy, "volume that is being imported"}.with_subject(volume.name);
  return Error{Code::kBusy, "volume that is being removed"}.with_subject(volume.name);
}

std::vector<ServerRecord> without(std::vector<ServerRecord> servers,
                                  const std::vector<std::string>& draining) {
  std::erase_if(servers, [&](const ServerRecord& each) {
    return std::find(draining.begin(), draining.end(), each.name) != draining.end();
  });
  return servers;
}

}  // namespace

std::vector<ServerRecord> VolumeLayout::servers_for_members() const {
  return without(servers, draining);
}

const ServerRecord* VolumeLayout::find_server(std::string_view name) const noexcept {
  const auto found = std::find_if(servers.begin(), servers.end(),
                                  [&](const ServerRecord& each) { return each.name == name; });
  return found == servers.end() ? nullptr : &*found;
}

const std::vector<std::string>& VolumeLayout::addresses_of(const Member& member) const noexcept {
  const ServerRecord* const server = find_server(member.server);
  return server == nullptr ? member.addresses : server->addresses;
}

Cluster::Cluster(std::shared_ptr<MetadataStore> store, std::string name,
                 std::chrono::nanoseconds limit)
    : store_{std::move(store)}, name_{std::move(name)}, keys_{name_}, limit_{limit} {}

Result<Cluster> Cluster::open(const VolumeUri& uri, const StoreOptions& options,
                              std::chrono::nanoseconds limit) {
  auto store = open_store(uri, options);
  if (!store) return store.error();
  return Cluster{std::move(*store), uri.cluster, limit};
}

Compare Cluster::generation_is(std::uint64_t generation) const {
  return {keys_.generation(), generation_json(generation)};
}

Result<std::uint64_t> Cluster::generation() const {
  Error last = Error{Code::kBusy, "generation of a cluster"}.with_subject(name_);
  // Two rounds: another client may make one between the read and the transaction.
  for (int round = 0; round < 2; ++round) {
    auto entry = get_one(*store_, keys_.generation(), limit_);
    if (!entry) return entry.error();
    if (*entry) return parse_generation((*entry)->key, (*entry)->value);
    const std::uint64_t made = random_number();
    const auto committed = store_->commit({{{keys_.generation(), std::nullopt}},
                                           {{keys_.generation(), generation_json(made), kNoLease}}},
                                          limit_);
    if (!committed) return committed.error();
    if (committed->outcome == Outcome::kApplied) return made;
    if (committed->cause) last = *committed->cause;
  }
  return last;
}

Result<std::vector<ServerRecord>> Cluster::servers() const {
  const auto snapshot = store_->range(keys_.servers(), limit_);
  if (!snapshot) return snapshot.error();
  std::vector<ServerRecord> servers;
  for (const Entry& entry : snapshot->entries) {
    auto server = parse_server(entry.key, entry.value);
    if (!server) return server.error();
    servers.push_back(std::move(*server));
  }
  return servers;
}

Result<std::vector<std::string>> Cluster::draining() const {
  const auto snapshot = store_->range(keys_.draining(), limit_);
  if (!snapshot) return snapshot.error();
  std::vector<std::string> names;
  for (const Entry& entry : snapshot->entries)
    names.push_back(entry.key.substr(keys_.draining().size()));
  return names;
}

Result<std::vector<ServerRecord>> Cluster::servers_for_members() const {
  auto servers = this->servers();
  if (!servers) return servers.error();
  const auto draining = this->draining();
  if (!draining) return draining.error();
  return without(std::move(*servers), *draining);
}

Result<std::vector<VolumeRecord>> Cluster::volumes() const {
  const auto snapshot = store_->range(keys_.volumes(), limit_);
  if (!snapshot) return snapshot.error();
  std::vector<VolumeRecord> volumes;
  for (const Entry& entry : snapshot->entries) {
    if (entry.key.find('/', keys_.volumes().size()) != std::string::npos) continue;  // a group
    auto volume = parse_volume(entry.key, entry.value);
    if (!volume) return volume.error();
    volumes.push_back(std::move(*volume));
  }
  return volumes;
}

Result<VolumeLayout> Cluster::read(std::string_view volume) const {
  VolumeLayout layout;
  auto generation = this->generation();
  if (!generation) return generation.error();
  layout.generation = *generation;
  // One read for the volume and its groups, so that they are of one revision. It also finds volumes
  // whose names begin so.
  const std::string own = keys_.volume(volume);
  const auto snapshot = store_->range(own, limit_);
  if (!snapshot) return snapshot.error();
  const Entry* const entry = snapshot->find(own);
  if (entry == nullptr) return Error{Code::kNotFound, "volume"}.with_subject(volume);
  auto record = parse_volume(own, entry->value);
  if (!record) return record.error();
  layout.volume = std::move(*record);
  layout.volume_value = entry->value;
  layout.revision = entry->revision;
  const std::string groups = keys_.groups(volume);
  for (const Entry& each : snapshot->entries) {
    if (!each.key.starts_with(groups)) continue;
    auto group = parse_group(each.key, each.value);
    if (!group) return group.error();
    layout.revision = std::max(layout.revision, each.revision);
    if (group->index < layout.volume.group_count()) {
      layout.groups.push_back(std::move(*group));
      layout.group_values.push_back(each.value);
    } else {
      layout.extra_groups.push_back(std::move(*group));
    }
  }
  if (const Entry* const writer = snapshot->find(keys_.writer(volume)); writer != nullptr)
    layout.live_writer = writer->value;
  auto servers = this->servers();
  if (!servers) return servers.error();
  layout.servers = std::move(*servers);
  auto draining = this->draining();
  if (!draining) return draining.error();
  layout.draining = std::move(*draining);
  return layout;
}

Result<VolumeLayout> Cluster::remains(std::string_view volume) const { return read(volume); }

Result<VolumeLayout> Cluster::layout(std::string_view volume) const {
  auto layout = read(volume);
  if (!layout) return layout.error();
  if (layout->volume.state != VolumeState::kReady) return not_ready(layout->volume);
  for (std::uint64_t i = 0; i < layout->volume.group_count(); ++i)
    if (i >= layout->groups.size() || layout->groups[i].index != i)
      return Error{Code::kProtocol, "record of a cluster"}.with_subject(keys_.group(volume, i) +
                                                                        ": missing");
  return layout;
}

}  // namespace remora::volume
