/// Limits of the regions and bytes that one session may have open at once. Each session has its
/// own.

#include <remora/engine/engine.h>
#include <remora/metrics/registry.h>

#include "conformance_test.h"
#include "outcome.h"

namespace remora::test {
namespace {

constexpr std::uint64_t kSizeBytes = 1U << 20U;

class SessionLimitsTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool needs_own_server() const override { return true; }
  void configure(config::ServerConfig& config) const override {
    config.limits.session_regions_max = 4;
    config.limits.session_memory_bytes = 3 * kSizeBytes;
  }
  /// Opens the regions of `names` in the session of `engine`.
  std::vector<Region> open_all(const Engine& engine, const std::vector<std::string>& names) {
    std::vector<Region> open;
    open.reserve(names.size());
    for (const std::string& name : names)
      open.push_back(engine.open_region(uri(name), Rights::kAll).value());
    return open;
  }
  std::string made(std::uint64_t size_bytes) { return create({.size_bytes = size_bytes}).name; }
};

TEST_P(SessionLimitsTest, OneRegionMoreIsRefusedUntilOneIsClosed) {
  const Engine client = open_engine();
  const std::string small = made(4096);
  std::vector<Region> regions = open_all(client, {small, small, small, small});
  const auto refused = client.open_region(uri(small), Rights::kAll);
  ASSERT_TRUE(fails_with(refused, Code::kLimitExceeded));
  EXPECT_EQ(refused.error().subject(), "limits.session_regions_max") << refused.error();
  EXPECT_EQ(refused.error().asked(), 5U);
  EXPECT_EQ(refused.error().allowed(), 4U);
  EXPECT_EQ(server()
                .registry()
                .value("remora_server_requests_refused_total", {{"limit", "session_regions_max"}})
                .value(),
            1);
  // Another session has its own limits.
  const Engine neighbour = open_engine();
  EXPECT_EQ(open_all(neighbour, {small, small, small, small}).size(), 4U);
  regions.pop_back();
  EXPECT_TRUE(eventually([&] { return ok(client.open_region(uri(small), Rights::kAll)); }));
  EXPECT_TRUE(ok(regions.front().write_zeroes(ByteOffset{0}, 64)));
}

TEST_P(SessionLimitsTest, OneByteMoreIsRefusedUntilSomeAreClosed) {
  const Engine client = open_engine();
  const std::string large = made(kSizeBytes);
  const std::string small = made(4096);
  std::vector<Region> regions = open_all(client, {large, large, large});
  const auto refused = client.open_region(uri(small), Rights::kAll);
  ASSERT_TRUE(fails_with(refused, Code::kLimitExceeded));
  EXPECT_EQ(refused.error().subject(), "limits.session_memory") << refused.error();
  EXPECT_EQ(refused.error().asked(), 3 * kSizeBytes + 4096);
  EXPECT_EQ(refused.error().allowed(), 3 * kSizeBytes);
  const Engine neighbour = open_engine();
  EXPECT_EQ(open_all(neighbour, {large, large, large}).size(), 3U);
  regions.pop_back();
  EXPECT_TRUE(eventually([&] { return ok(client.open_region(uri(small), Rights::kAll)); }));
}

TEST_P(SessionLimitsTest, FenceWithoutRoomForTheNewGrantRevokesNoGrant) {
  const Engine client = open_engine();
  const std::string large = made(kSizeBytes);
  const std::string wanted = made(kSizeBytes);
  const std::vector<Region> regions = open_all(client, {large, large, large});
  const Region theirs = open(wanted);
  ASSERT_TRUE(fails_with(client.fence_region(uri(wanted), Rights::kAll), Code::kLimitExceeded));
  EXPECT_TRUE(ok(theirs.write_zeroes(ByteOffset{0}, 64)));
  // The fence of a region ends the session's own grants of it, which makes room for the new one.
  const auto fenced = client.fence_region(uri(large), Rights::kAll);
  ASSERT_TRUE(ok(fenced));
  EXPECT_TRUE(ok(fenced->write_zeroes(ByteOffset{0}, 64)));
}

REMORA_CONFORMANCE(SessionLimitsTest);

}  // namespace
}  // namespace remora::test
