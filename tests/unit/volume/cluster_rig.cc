#include "cluster_rig.h"

#include <remora/volume/open_store.h>

#include "mirror_layout.h"
#include "support/server.h"

namespace remora::volume::test {

void ClusterRig::SetUp() {
  VolumeUri uri;
  uri.store = StoreKind::kFile;
  uri.path = folder_.path() + "/cluster.json";
  cluster_.emplace(open_store(uri).value(), std::string{kFileCluster});
  servers_.resize(std::size_t(kServers));
  for (int i = 0; i < kServers; ++i) start(i);
}

Engine ClusterRig::engine() {
  EngineOptions options;
  options.control_deadline = 3s;
  options.operation_deadline = 3s;
  options.reconnect_for = 0s;
  return Engine::open(options).value();
}

std::string ClusterRig::address(int index) const {
  return "127.0.0.1:" + std::to_string(servers_[std::size_t(index)]->port());
}

void ClusterRig::start(int index) {
  servers_[std::size_t(index)].emplace(
      Server::start(
          remora::test::server_config(
              TransportKind::kTcp, {.pool_bytes = 16_MiB, .piece_bytes = 1_MiB, .regions_max = 64}))
          .value());
  register_server(index);
}

void ClusterRig::register_server(int index) {
  const ServerStatus status = server(index).status();
  const ServerInfo info =
      engine().connect("remora://" + address(index) + "?transport=tcp").value().server();
  const ServerRecord record{.name = "s" + std::to_string(index),
                            .addresses = {address(index)},
                            .boot_id = info.boot_id,
                            .memory_id = info.memory_id,
                            .pool_bytes = status.pool_bytes,
                            .pool_free_bytes = status.pool_bytes - status.pool_used_bytes};
  ASSERT_OK(cluster().store().commit(
      {{}, {{cluster().keys().server(record.name), to_json(record), kNoLease}}}, 5s));
}

void ClusterRig::kill(int index) {
  servers_[std::size_t(index)].reset();
  ASSERT_OK(cluster().store().commit(
      {{}, {{cluster().keys().server("s" + std::to_string(index)), std::nullopt, kNoLease}}}, 5s));
}

VolumeSpec ClusterRig::spec(std::uint64_t groups, std::uint32_t copies) {
  VolumeSpec spec;
  spec.name = "disk";
  spec.kind = Kind::kMirror;
  spec.copies = copies;
  spec.group_bytes = kGroup;
  spec.width = static_cast<std::uint32_t>(groups);
  spec.size_bytes = groups * kGroup;
  return spec;
}

VolumeLayout ClusterRig::make(std::uint64_t groups, std::uint32_t copies) {
  const Engine creating = engine();
  const auto made = create_volume(cluster(), creating, spec(groups, copies));
  EXPECT_TRUE(made) << made.error().error << ' ' << made.error().detail;
  return layout();
}

std::size_t ClusterRig::regions() const {
  std::size_t count = 0;
  for (const auto& each : servers_)
    if (each) count += each->regions().size();
  return count;
}

std::vector<std::byte> ClusterRig::data_of(const Member& member) const {
  const Engine reading = engine();
  const Region region = reading
                            .open_region("remora://" + member.addresses.front() + "/" +
                                             member.region + "?transport=tcp",
                                         Rights::kRead)
                            .value();
  std::vector<std::byte> bytes(kGroup);
  const Status read = region.read(ByteOffset{detail::mirror_data_offset(kGroup)}, bytes);
  EXPECT_TRUE(read.ok()) << member.server;
  return bytes;
}

void ClusterRig::expect_whole(std::uint32_t copies) const {
  const VolumeLayout found = layout();
  for (const GroupRecord& group : found.groups) {
    ASSERT_EQ(group.members.size(), copies) << group.index;
    const std::vector<std::byte> primary = data_of(group.members.front());
    for (const Member& member : group.members) {
      EXPECT_EQ(member.state, MemberState::kInSync) << member.server;
      EXPECT_TRUE(data_of(member) == primary) << group.index << ' ' << member.server;
    }
  }
  EXPECT_EQ(regions(), found.groups.size() * copies);
}

void ClusterRig::expect_no_keys() const {
  EXPECT_TRUE(cluster().store().range(cluster().keys().volumes(), 5s).value().entries.empty());
}

}  // namespace remora::volume::test
