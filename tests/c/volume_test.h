#pragma once

/// A volume of the C API, over servers of this process.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/server.h>
#include <remora/remora_c.h>
#include <remora/volume/cluster.h>
#include <remora/volume/management.h>
#include <remora/volume/open_store.h>

#include "support/assert_ok.h"
#include "support/c_error.h"
#include "support/server.h"
#include "unit/volume/etcd_process.h"

namespace remora::test {

inline constexpr std::uint32_t kServers = 3;
inline constexpr std::uint64_t kStripe = 4096;
inline constexpr std::uint64_t kGroup = std::uint64_t{1} << 20U;
inline constexpr std::uint64_t kSize = kServers * kGroup;
inline constexpr std::chrono::seconds kLimit{5};

/// Three servers, which are registered in a cluster, a volume "disk" over them, and a client.
class VolumeTest : public ::testing::Test {
 protected:
  /// Of the cluster; a volume adds its name.
  [[nodiscard]] virtual std::string cluster_uri() {
    return "remora+file://" + folder_.path() + "/cluster.json";
  }
  [[nodiscard]] virtual volume::VolumeSpec spec() {
    volume::VolumeSpec made;
    made.name = "disk";
    made.size_bytes = kSize;
    made.group_bytes = kGroup;
    made.stripe_bytes = kStripe;
    return made;
  }
  void SetUp() override {
    const volume::VolumeUri uri = volume::parse_uri(cluster_uri()).value();
    const volume::Cluster cluster = volume::Cluster::open(uri).value();
    const Engine maker = Engine::open({}).value();
    for (std::uint32_t i = 0; i < kServers; ++i) {
      servers_.emplace_back(Server::start(server_config(TransportKind::kTcp, {})).value());
      const std::string address = "127.0.0.1:" + std::to_string(servers_[i]->port());
      const ServerInfo info =
          maker.connect("remora://" + address + "?transport=tcp").value().server();
      const ServerStatus status = servers_[i]->status();
      const volume::ServerRecord record{
          .name = "s" + std::to_string(i),
          .addresses = {address},
          .boot_id = info.boot_id,
          .memory_id = info.memory_id,
          .pool_bytes = status.pool_bytes,
          .pool_free_bytes = status.pool_bytes - status.pool_used_bytes};
      ASSERT_OK(cluster.store().commit(
          {{}, {{cluster.keys().server(record.name), volume::to_json(record), volume::kNoLease}}},
          kLimit));
    }
    const auto made = volume::create_volume(cluster, maker, spec());
    ASSERT_TRUE(made) << made.error().detail;
    ASSERT_EQ(remora_engine_open(nullptr, &engine_, &error_), REMORA_OK) << error_.message;
  }
  void TearDown() override {
    remora_queue_free(queue_);
    remora_volume_free(volume_);
    remora_engine_free(engine_);
  }

  [[nodiscard]] std::string uri() { return cluster_uri() + "/disk"; }
  int open(const remora_volume_options* options = nullptr) {
    return remora_engine_open_volume(engine_, uri().c_str(), options, &volume_, &error_);
  }
  void open_queue(std::size_t depth) {
    ASSERT_EQ(open(), REMORA_OK) << error_.message;
    const remora_queue_options options{.size = sizeof(options), .depth = depth, .deadline_ns = 0};
    ASSERT_EQ(remora_volume_queue_create(volume_, &options, &queue_, &error_), REMORA_OK)
        << error_.message;
  }
  /// Of all operations in flight, in calls with room for `capacity`.
  std::vector<remora_completion> all(std::size_t wanted, std::size_t capacity) {
    std::vector<remora_completion> found;
    std::vector<remora_completion> some(capacity);
    while (found.size() < wanted) {
      std::size_t count = 0;
      EXPECT_EQ(remora_queue_wait(queue_, capacity, some.data(), capacity, &count, &error_),
                REMORA_OK)
          << error_.message;
      if (count == 0) break;
      found.insert(found.end(), some.begin(), some.begin() + std::ptrdiff_t(count));
    }
    return found;
  }
  void stop(std::uint32_t server) { servers_[server].reset(); }
  [[nodiscard]] const Server& server(std::uint32_t index) { return *servers_[index]; }

  remora_error error_ = no_error();
  remora_engine* engine_ = nullptr;
  remora_volume* volume_ = nullptr;
  remora_queue* queue_ = nullptr;

 private:
  volume::test::TemporaryFolder folder_;
  std::vector<std::optional<Server>> servers_;
};

inline remora_volume_options no_options() {
  remora_volume_options options{};
  options.size = sizeof(options);
  return options;
}

inline std::vector<unsigned char> pattern(std::size_t length, unsigned seed) {
  std::vector<unsigned char> bytes(length);
  for (std::size_t i = 0; i < length; ++i)
    bytes[i] = static_cast<unsigned char>(i * 7 + i / kStripe * 31 + seed);
  return bytes;
}

}  // namespace remora::test
