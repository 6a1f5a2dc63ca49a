/// Many sessions of one client have the same region open. Over rdma the server registers it once
/// for all of them; each session keeps what it has when another one ends, and a fence reaches all.

#include <cstdint>
#include <string>
#include <vector>

#include <remora/config/secret_key.h>
#include <remora/metrics/registry.h>

#include "conformance_test.h"

namespace remora::test {
namespace {

using config::SecretKey;

/// More than the bound on pinned memory below; an emulator takes half a second to connect each.
constexpr std::size_t kSessions = 10;

class SharedSessionsTest : public ConformanceTest {
 protected:
  static constexpr std::uint64_t kRegionBytes = 32_MiB;
  [[nodiscard]] bool needs_own_server() const override { return true; }
  [[nodiscard]] ServerOptions server_options() const override {
    return {.pool_bytes = 2 * kRegionBytes, .piece_bytes = 2 * kRegionBytes};
  }
  void configure(config::ServerConfig& config) const override {
    config.auth = config::Auth::kKeys;
    config.clients.resize(1);
    config.clients[0].name = "alice";
    config.clients[0].key = key_;
    config.clients[0].create = true;
  }
  void configure_engine(EngineOptions& options) const override {
    options.client_name = "alice";
    options.key = key_;
    options.mr_cache_bytes = 0;
  }
  /// Another process of the client, as the server sees it.
  [[nodiscard]] Engine engine_of_client() const {
    EngineOptions options = patient_options();
    configure_engine(options);
    return Engine::open(options).value();
  }
  [[nodiscard]] double series(const char* name) { return server().registry().sum(name).value(); }
  /// What the device has of the regions: nothing over the other transports. With windows the pool
  /// is registered once, and no grant registers any of it.
  void expect_registered(std::uint64_t bytes) {
    if (!over_rdma()) return;
    if (series("remora_server_windows") != 0) bytes = 0;
    EXPECT_TRUE(eventually([&] {
      return series("remora_server_registered_bytes") == static_cast<double>(bytes);
    })) << series("remora_server_registered_bytes");
  }
  static std::int64_t pinned_kib() {
    const auto counts = Resources::now().counts();
    const auto found = counts.find("pinned KiB");
    return found == counts.end() ? 0 : found->second;
  }

  SecretKey key_ = SecretKey::generate().value();
};

TEST_P(SharedSessionsTest, RegionOfManySessionsIsRegisteredOnce) {
  const RegionInfo made = create({.size_bytes = kRegionBytes});
  std::vector<Engine> engines;
  std::vector<Session> sessions;
  for (std::size_t i = 0; i < kSessions; ++i) {
    engines.push_back(engine_of_client());
    sessions.push_back(engines.back().connect(uri()).value());
  }
  expect_registered(0);
  const std::int64_t before_kib = pinned_kib();
  std::vector<Region> regions;
  for (const Engine& each : engines)
    regions.push_back(each.open_region(uri(made.name), Rights::kAll).value());
  expect_registered(kRegionBytes);
  // Beside the region: what each client pins for its own use.
  constexpr auto kRegionKib = static_cast<std::int64_t>(kRegionBytes / 1024);
  EXPECT_LT(pinned_kib() - before_kib, 6 * kRegionKib) << "it is pinned for each session";
  // All of them are the one region.
  for (std::size_t i = 0; i < kSessions; ++i)
    EXPECT_EQ(regions[i].fetch_add(ByteOffset{kRegionBytes - 8}, 1).value(), i);
  // One goes, the others keep what they have; the last one takes it along.
  while (regions.size() > 1) {
    regions.erase(regions.begin());
    sessions.erase(sessions.begin());
    engines.erase(engines.begin());
    EXPECT_EQ(regions.front().fetch_add(ByteOffset{0}, 1).value(), kSessions - 1 - regions.size());
  }
  expect_registered(kRegionBytes);
  regions.clear();
  expect_registered(0);
}

TEST_P(SharedSessionsTest, FenceByOneSessionEndsTheGrantsOfAll) {
  const RegionInfo made = create({.size_bytes = 64_KiB});
  std::vector<Engine> engines;
  std::vector<Region> regions;
  for (std::size_t i = 0; i < kSessions; ++i) {
    engines.push_back(engine_of_client());
    regions.push_back(engines.back().open_region(uri(made.name), Rights::kAll).value());
  }
  const Region fenced = engine().fence_region(uri(made.name), Rights::kAll).value();
  EXPECT_EQ(fenced.fetch_add(ByteOffset{0}, 1).value(), 0U);
  for (const Region& old : regions)
    EXPECT_TRUE(fails_with(old.fetch_add(ByteOffset{0}, 1), Code::kAccessRefused));
  expect_registered(64_KiB);
  // They come back to the one grant of the new epoch.
  for (std::size_t i = 0; i < kSessions; ++i) {
    regions[i] = engines[i].open_region(uri(made.name), Rights::kAll).value();
    EXPECT_EQ(regions[i].fetch_add(ByteOffset{0}, 1).value(), i + 1);
  }
  expect_registered(64_KiB);
}

/// Removing a region ends the grants of all sessions too, and leaves nothing registered.
TEST_P(SharedSessionsTest, RegionThatIsClosedByAllCanBeRemoved) {
  const RegionInfo made = create({.size_bytes = 64_KiB});
  {
    std::vector<Engine> engines;
    std::vector<Region> regions;
    for (std::size_t i = 0; i < kSessions; ++i) {
      engines.push_back(engine_of_client());
      regions.push_back(engines.back().open_region(uri(made.name), Rights::kRead).value());
    }
    expect_registered(64_KiB);
  }
  expect_registered(0);
  ASSERT_TRUE(ok(session().remove_region(made.name)));
  forget(made.name);
}

REMORA_CONFORMANCE(SharedSessionsTest);

}  // namespace
}  // namespace remora::test
