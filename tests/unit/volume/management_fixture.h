#pragma once

/// Three servers of this process, which are registered in a file.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/server.h>
#include <remora/engine/types.h>
#include <remora/volume/cluster.h>
#include <remora/volume/management.h>
#include <remora/volume/open_store.h>

#include "support/assert_ok.h"
#include "support/server.h"
#include "unit/volume/etcd_process.h"

namespace remora::volume::test {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only

class Management : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kPool = 16_MiB;
  static constexpr std::chrono::seconds kLimit{5};

  void SetUp() override {
    VolumeUri uri;
    uri.store = StoreKind::kFile;
    uri.path = folder_.path() + "/cluster.json";
    cluster_.emplace(open_store(uri).value(), std::string{kFileCluster});
    engine_.emplace(Engine::open({}).value());
    for (int i = 0; i < 3; ++i) {
      servers_.push_back(
          Server::start(remora::test::server_config(TransportKind::kTcp, {.pool_bytes = kPool}))
              .value());
      register_server(i);
    }
  }
  void register_server(int index, std::optional<std::uint64_t> free_bytes = {}) {
    const ServerStatus status = servers_[std::size_t(index)]->status();
    const ServerInfo info =
        engine().connect("remora://" + address(index) + "?transport=tcp").value().server();
    ServerRecord record{.name = "s" + std::to_string(index),
                        .addresses = {address(index)},
                        .boot_id = info.boot_id,
                        .memory_id = info.memory_id,
                        .pool_bytes = status.pool_bytes,
                        .pool_free_bytes = status.pool_bytes - status.pool_used_bytes};
    if (free_bytes) record.pool_bytes = record.pool_free_bytes = *free_bytes;
    ASSERT_OK(cluster().store().commit(
        {{}, {{cluster().keys().server(record.name), to_json(record), kNoLease}}}, kLimit));
  }
  [[nodiscard]] const Cluster& cluster() const { return *cluster_; }
  [[nodiscard]] const Engine& engine() const { return *engine_; }
  [[nodiscard]] Server& server(int index) { return *servers_[std::size_t(index)]; }
  [[nodiscard]] std::string address(int index) const {
    return "127.0.0.1:" + std::to_string(servers_[std::size_t(index)]->port());
  }
  /// The cluster's URI, for other clients.
  [[nodiscard]] std::string cluster_uri() const {
    return "remora+file://" + folder_.path() + "/cluster.json";
  }
  void stop(int index) { servers_[std::size_t(index)].reset(); }
  [[nodiscard]] std::size_t regions() const {
    std::size_t count = 0;
    for (const auto& each : servers_)
      if (each) count += each->regions().size();
    return count;
  }
  static constexpr std::uint64_t kSize = 6_MiB;
  [[nodiscard]] static VolumeSpec spec(std::uint64_t size_bytes = kSize) {
    VolumeSpec spec;
    spec.name = "disk";
    spec.size_bytes = size_bytes;
    spec.group_bytes = 1_MiB;
    return spec;
  }
  /// No key of a volume is there.
  void expect_no_keys() const {
    EXPECT_TRUE(
        cluster().store().range(cluster().keys().volumes(), kLimit).value().entries.empty());
  }

 private:
  TemporaryFolder folder_;
  std::optional<Cluster> cluster_;
  std::vector<std::optional<Server>> servers_;
  std::optional<Engine> engine_;
};

}  // namespace remora::volume::test
