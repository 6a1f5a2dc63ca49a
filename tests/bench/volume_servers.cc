#include "volume_servers.h"

#include <chrono>
#include <unistd.h>
#include <utility>

#include <remora/volume/open_store.h>

namespace remora::bench {
namespace {

[[noreturn]] void serve(std::uint64_t pool_bytes, int where) {
  config::ServerConfig config;
  config.listen.address = "127.0.0.1";
  config.listen.port = 0;
  config.auth = config::Auth::kNone;
  config.transports.rdma = config::Availability::kOff;
  config.transports.shm = config::Availability::kOff;
  config.transports.tcp = config::Availability::kRequired;
  config.transports.tcp_spin = std::chrono::nanoseconds{0};
  config.pool.size_bytes = pool_bytes;
  config.pool.huge_pages = config::HugePages::kNever;
  config.log.level = config::LogLevel::kWarn;
  const Server server = Server::start(config).value();
  ServerProcess::tell(where, std::to_string(server.port()));
  for (;;) ::pause();
}

std::string name_of(std::size_t index) { return "s" + std::to_string(index); }

}  // namespace

VolumeServers::VolumeServers(int count, std::uint64_t pool_bytes, int core)
    : pool_bytes_{pool_bytes} {
  for (int i = 0; i < count; ++i)
    processes_.push_back(
        ServerProcess::start(core, [pool_bytes](int where) { serve(pool_bytes, where); }));
}

std::string VolumeServers::address(std::size_t index) const {
  return "127.0.0.1:" + processes_[index]->told();
}

volume::Cluster VolumeServers::open(const Engine& engine) const {
  volume::VolumeUri uri;
  uri.store = volume::StoreKind::kFile;
  uri.path = folder_.path() + "/cluster.json";
  volume::Cluster cluster{volume::open_store(uri).value(), std::string{volume::kFileCluster}};
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const Session session = engine.connect("remora://" + address(i) + "?transport=tcp").value();
    const ServerInfo info = session.server();
    const volume::ServerRecord record{.name = name_of(i),
                                      .addresses = {address(i)},
                                      .boot_id = info.boot_id,
                                      .memory_id = info.memory_id,
                                      .pool_bytes = pool_bytes_,
                                      .pool_free_bytes = pool_bytes_};
    const auto committed =
        cluster.store()
            .commit({{}, {{cluster.keys().server(record.name), to_json(record), volume::kNoLease}}},
                    volume::Cluster::kLimit)
            .value();
    if (committed.outcome != volume::Outcome::kApplied) give_up("the cluster file was not written");
  }
  return cluster;
}

Region VolumeServers::create_region(const Engine& engine, std::size_t index,
                                    const std::string& name, std::uint64_t size_bytes) const {
  const std::string server = "remora://" + address(index);
  RegionSpec spec;
  spec.name = name;
  spec.size_bytes = size_bytes;
  engine.connect(server + "?transport=tcp").value().create_region(spec).value();
  return engine.open_region(server + "/" + name + "?transport=tcp", Rights::kAll).value();
}

void VolumeServers::kill(std::string_view name) {
  for (std::size_t i = 0; i < processes_.size(); ++i)
    if (name_of(i) == name) processes_[i].reset();
}

}  // namespace remora::bench
