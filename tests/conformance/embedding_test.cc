/// A server embedded in an application: views of its regions, and regions that its configuration
/// names.

#include <algorithm>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include <remora/metrics/http_endpoint.h>

#include "conformance_test.h"
#include "support/mapping_flags.h"

namespace remora::test {
namespace {

class EmbeddingTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool needs_own_server() const override { return true; }
  [[nodiscard]] ServerOptions server_options() const override {
    return {.pool_bytes = 4U << 20U, .piece_bytes = 64U << 10U};
  }
  void configure(config::ServerConfig& config) const override {
    config.regions.push_back({.name = "configured",
                              .size_bytes = 64_KiB,
                              .block_bytes = 512,
                              .rights = {.read = true, .write = true, .atomic = false},
                              .atomics = "none",
                              .shm = over_shm()});
  }
};

TEST_P(EmbeddingTest, ViewSeesWhatClientsWrite) {
  const Region region = make_region({.size_bytes = 256_KiB});
  const RegionView view = server().view(region.info().name).value();
  ASSERT_EQ(view.size_bytes(), region.size_bytes());
  const std::vector<std::byte> model = noise(256_KiB, 90);
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
  std::vector<std::byte> seen(256_KiB);
  ASSERT_TRUE(ok(view.read(ByteOffset{0}, seen)));
  EXPECT_TRUE(same_bytes(seen, model));
  // Reads the same bytes in place, extent by extent.
  std::vector<std::byte> pieces;
  for (const auto extent : view.extents())
    pieces.insert(pieces.end(), extent.begin(), extent.end());
  EXPECT_TRUE(same_bytes(pieces, model));
}

TEST_P(EmbeddingTest, ClientsSeeWhatTheViewWrites) {
  const Region region = make_region({.size_bytes = 256_KiB});
  const RegionView view = server().view(region.info().name).value();
  const std::vector<std::byte> model = noise(200'000, 91);
  ASSERT_TRUE(ok(view.write(ByteOffset{12'345}, model)));
  std::vector<std::byte> seen(model.size());
  ASSERT_TRUE(ok(region.read(ByteOffset{12'345}, seen)));
  EXPECT_TRUE(same_bytes(seen, model));
}

TEST_P(EmbeddingTest, CoreDumpsHoldNothingOfIt) {
  const Region region = make_region({.size_bytes = 256_KiB});
  SlotPool slots = engine().allocate_slots(8, 4_KiB).value();
  const Slot slot = slots.take();
  const std::vector<std::byte> model = noise(256_KiB, 92);
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
  EXPECT_TRUE(is_left_out_of_core_dumps(slot.bytes().data()));
  const RegionView view = server().view(region.info().name).value();
  for (const auto extent : view.extents()) EXPECT_TRUE(is_left_out_of_core_dumps(extent.data()));
  // The server's mappings and, over shm, those of the client.
  std::size_t count = 0;
  for (const MappingFlags& mapping : mapping_flags())
    if (mapping.name.starts_with("/memfd:remora-pool") ||
        mapping.name.starts_with("/memfd:remora-region")) {
      EXPECT_TRUE(mapping.has("dd")) << mapping.name;
      ++count;
    }
  EXPECT_GE(count, over_shm() ? 3U : 1U);
}

TEST_P(EmbeddingTest, ViewOutsideTheRegionIsOutOfRange) {
  const RegionView view = server().view(create().name).value();
  std::vector<std::byte> bytes(2);
  EXPECT_TRUE(ok(view.read(ByteOffset{view.size_bytes() - 2}, bytes)));
  EXPECT_TRUE(fails_with(view.read(ByteOffset{view.size_bytes() - 1}, bytes), Code::kOutOfRange));
  EXPECT_TRUE(fails_with(view.write(ByteOffset{view.size_bytes()}, bytes), Code::kOutOfRange));
  EXPECT_TRUE(fails_with(view.write(ByteOffset{UINT64_MAX}, bytes), Code::kOutOfRange));
}

TEST_P(EmbeddingTest, ViewKeepsTheMemoryAfterRemovalAndStop) {
  const RegionInfo made = create({.size_bytes = 64_KiB});
  const RegionView view = server().view(made.name).value();
  const std::vector<std::byte> model = noise(64_KiB, 92);
  ASSERT_TRUE(ok(view.write(ByteOffset{0}, model)));
  ASSERT_TRUE(ok(session().remove_region(made.name)));
  forget(made.name);
  // The server gives the memory to no other region while the application has a view of it.
  const Region other = make_region({.size_bytes = 3_MiB});
  const std::vector<std::byte> dirt = noise(3_MiB, 94);
  ASSERT_TRUE(ok(other.write(ByteOffset{0}, dirt)));
  std::vector<std::byte> seen(64_KiB);
  ASSERT_TRUE(ok(view.read(ByteOffset{0}, seen)));
  EXPECT_TRUE(same_bytes(seen, model));
  server().stop();
  ASSERT_TRUE(ok(view.read(ByteOffset{0}, seen)));
  EXPECT_TRUE(same_bytes(seen, model));
}

TEST_P(EmbeddingTest, ServerCreatesAndRemovesRegionsOfItsOwn) {
  const std::string name = unique_name();
  const RegionInfo made = server().create_region(spec(name)).value();
  EXPECT_EQ(made.name, name);
  {
    const Region region = open(name, Rights::kReadWrite);
    EXPECT_EQ(read_all(region), std::vector<std::byte>(made.size_bytes));
    EXPECT_TRUE(fails_with(server().remove_region(name), Code::kBusy));
  }
  // The client closes the grant by a message, which the server may serve a little later.
  EXPECT_TRUE(eventually([&] { return server().status().grants == 0; }));
  EXPECT_TRUE(ok(server().remove_region(name)));
  EXPECT_TRUE(fails_with(server().remove_region(name), Code::kUnknownRegion));
}

TEST_P(EmbeddingTest, StoppedServerHasNoRegionsToMakeOrChange) {
  const RegionInfo made = create({.size_bytes = 64_KiB});
  forget(made.name);
  server().stop();
  EXPECT_TRUE(fails_with(server().create_region(spec(unique_name())), Code::kClosed));
  EXPECT_TRUE(fails_with(server().resize_region(made.name, 128_KiB), Code::kClosed));
  EXPECT_TRUE(fails_with(server().view(made.name), Code::kClosed));
  for (const Removal removal : {Removal::kIfUnused, Removal::kWhenUnused, Removal::kNow})
    EXPECT_TRUE(fails_with(server().remove_region(made.name, removal), Code::kClosed));
}

TEST_P(EmbeddingTest, ConfiguredRegionIsThereFromTheStart) {
  const RegionInfo info = session().stat("configured").value();
  EXPECT_EQ(info.size_bytes, 64_KiB);
  EXPECT_EQ(info.block_bytes, 512U);
  EXPECT_EQ(info.rights, Rights::kReadWrite);
  EXPECT_EQ(info.atomic_domain, "none");
  const Region region = open("configured", Rights::kReadWrite);
  const std::vector<std::byte> block = noise(512, 93);
  ASSERT_TRUE(ok(region.write(Block{127}, block)));
  EXPECT_TRUE(fails_with(region.write(Block{128}, block), Code::kOutOfRange));
}

TEST_P(EmbeddingTest, ListeningSaysWhereForEachTransport) {
  const std::vector<std::string> lines = server().listening();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].rfind(std::string{to_string(transport())} + " ", 0), 0U) << lines[0];
  EXPECT_NE(lines[0].find(std::to_string(server().port())), std::string::npos) << lines[0];
}

TEST_P(EmbeddingTest, ViewOfAWordFollowsCountingClients) {
  const Region region = make_region({.size_bytes = 4096});
  const RegionView view = server().view(region.info().name).value();
  std::uint64_t last = 0;
  for (std::uint64_t i = 1; i <= 100; ++i) {
    ASSERT_TRUE(ok(region.fetch_add(ByteOffset{128}, 1)));
    ASSERT_TRUE(ok(view.read(ByteOffset{128}, std::as_writable_bytes(std::span{&last, 1}))));
    ASSERT_EQ(last, i);
  }
}

/// The pages of the status have every session and region once, and their totals.
TEST_P(EmbeddingTest, StatusInPagesHasAllSessionsAndRegions) {
  std::vector<Engine> engines;
  std::vector<Session> sessions;
  std::set<std::string> names;
  for (int i = 0; i < 6; ++i) {
    engines.push_back(open_engine());
    sessions.push_back(engines.back().connect(uri()).value());
    names.insert(create().name);
  }
  for (const std::string list : {"sessions", "regions"}) {
    metrics::StatusQuery query{.limit = 2};
    std::set<std::string> seen;
    std::size_t pages = 0;
    for (bool more = true; more; ++pages) {
      ASSERT_LT(pages, 10U);
      const auto status = nlohmann::json::parse(server().status_json(query));
      EXPECT_EQ(status[list + "_total"], 7U) << "with the fixture's, or the configured one";
      EXPECT_LE(status[list].size(), 2U);
      for (const auto& one : status[list])
        EXPECT_TRUE(seen.insert(one[list == "regions" ? "name" : "id"].get<std::string>()).second);
      const auto& next = status[list + "_next"];
      more = !next.is_null();
      if (more)
        (list == "regions" ? query.regions_after : query.sessions_after) = next.get<std::string>();
    }
    EXPECT_EQ(seen.size(), 7U);
    EXPECT_EQ(pages, 4U);
    const bool all = std::includes(seen.begin(), seen.end(), names.begin(), names.end());
    EXPECT_EQ(all, list == "regions");
  }
  // A page may begin after any text.
  const auto end = nlohmann::json::parse(server().status_json({.sessions_after = "~"}));
  EXPECT_TRUE(end["sessions"].empty());
  EXPECT_TRUE(end["sessions_next"].is_null());
  EXPECT_EQ(end["sessions_total"], 7U);
  // The status of a client has pages too.
  const auto client = nlohmann::json::parse(engines.front().status_json({.limit = 1}));
  EXPECT_EQ(client["sessions_total"], 1U);
  EXPECT_TRUE(client["sessions_next"].is_null());
  const auto behind = nlohmann::json::parse(engines.front().status_json({.sessions_after = "~"}));
  EXPECT_TRUE(behind["sessions"].empty());
  EXPECT_EQ(behind["sessions_total"], 1U);
}

REMORA_CONFORMANCE(EmbeddingTest);

}  // namespace
}  // namespace remora::test
