#include "volume_rig.h"

#include "support/server.h"
#include "support/transport.h"

namespace remora::volume::test {

namespace {

Server start_server(std::uint16_t port) {
  return Server::start(
             remora::test::server_config(TransportKind::kTcp, {.pool_bytes = 8_MiB, .port = port}))
      .value();
}

}  // namespace

void VolumeRig::SetUp() {
  for (std::uint32_t i = 0; i < kServers; ++i) {
    servers_.emplace_back(start_server(0));
    ports_.push_back(servers_.back()->port());
  }
  EngineOptions options;
  configure_engine(options);
  engine_.emplace(Engine::open(options).value());
}

std::string VolumeRig::address(std::uint32_t server) const {
  return remora::test::listen_address(TransportKind::kTcp) + ":" + std::to_string(ports_[server]);
}

void VolumeRig::start_again(std::uint32_t server) {
  servers_[server].emplace(start_server(ports_[server]));
}

VolumeLayout VolumeRig::make(const VolumeShape& shape) {
  VolumeLayout layout;
  VolumeRecord& volume = layout.volume;
  volume.name = "v";
  volume.id = random_number();
  volume.block_bytes = 4_KiB;
  volume.stripe_bytes = shape.stripe_bytes;
  volume.group_bytes = shape.group_bytes;
  volume.width = shape.width;
  volume.size_bytes = shape.rows * volume.row_bytes() - shape.unused_bytes;
  for (std::uint32_t i = 0; i < kServers; ++i) {
    ServerRecord server;
    server.name = server_name(i);
    server.addresses = {address(i)};
    layout.servers.push_back(server);
  }
  for (std::uint64_t i = 0; i < volume.group_count(); ++i) {
    const auto server = static_cast<std::uint32_t>(i % kServers);
    const Session session = engine_->connect("remora://" + address(server)).value();
    RegionSpec spec;
    spec.name = region_name(volume.id, i, random_number());
    spec.size_bytes = volume.group_bytes;
    const RegionInfo info = session.create_region(spec).value();
    GroupRecord group;
    group.index = i;
    group.members.push_back({.server = server_name(server),
                             .addresses = {address(server)},
                             .memory_id = info.memory_id,
                             .region = info.name,
                             .incarnation = info.incarnation});
    layout.groups.push_back(group);
  }
  return layout;
}

Volume VolumeRig::open(const VolumeLayout& layout, const VolumeOptions& options) {
  return Volume::open(*engine_, layout, options).value();
}

}  // namespace remora::volume::test
