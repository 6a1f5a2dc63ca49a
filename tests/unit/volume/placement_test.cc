// Where groups go, and what is said if they do not fit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <remora/engine/types.h>
#include <remora/volume/placement.h>

namespace remora::volume {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using ::testing::HasSubstr;

ServerRecord server(std::string name, std::uint64_t free_bytes, std::string domain = {}) {
  ServerRecord record;
  record.name = std::move(name);
  record.pool_bytes = free_bytes;
  record.pool_free_bytes = free_bytes;
  record.failure_domain = std::move(domain);
  return record;
}

TEST(Placement, GroupsOfARowAreOnDifferentServers) {
  const std::vector servers{server("a", 1_GiB), server("b", 1_GiB), server("c", 1_GiB)};
  const auto placed = place(servers, {.groups = 6, .group_bytes = 64_MiB, .width = 3});
  ASSERT_TRUE(placed.fits());
  for (const std::size_t row : {0U, 3U}) {
    const std::set<std::size_t> used{placed.groups[row][0], placed.groups[row + 1][0],
                                     placed.groups[row + 2][0]};
    EXPECT_EQ(used.size(), 3U);
  }
}

TEST(Placement, MoreRoomTakesMoreGroups) {
  const std::vector servers{server("a", 64_MiB), server("b", 512_MiB)};
  const auto placed = place(servers, {.groups = 4, .group_bytes = 64_MiB, .width = 1});
  ASSERT_TRUE(placed.fits());
  for (const auto& set : placed.groups) EXPECT_EQ(set, std::vector<std::size_t>{1});
}

TEST(Placement, EveryGroupFitsToTheLastByte) {
  const std::vector servers{server("a", 128_MiB), server("b", 64_MiB + 4096)};
  EXPECT_TRUE(place(servers, {.groups = 3, .group_bytes = 64_MiB, .width = 2}).fits());
  const auto refused = place(servers, {.groups = 4, .group_bytes = 64_MiB, .width = 2});
  ASSERT_FALSE(refused.fits());
  ASSERT_EQ(refused.rooms.size(), 2U);
  EXPECT_EQ(refused.rooms[0].missing_bytes, 0U);
  EXPECT_EQ(refused.rooms[1].free_bytes, 64_MiB);
  EXPECT_EQ(refused.rooms[1].missing_bytes, 64_MiB);
  EXPECT_THAT(refused.missing(), HasSubstr("b: 64MiB free in whole groups, 64MiB missing"));
}

TEST(Placement, CopiesAreInDifferentDomains) {
  const std::vector servers{server("a", 1_GiB, "r1"), server("b", 1_GiB, "r1"),
                            server("c", 1_GiB, "r2")};
  const auto placed = place(servers, {.groups = 4, .group_bytes = 64_MiB, .width = 2, .copies = 2});
  ASSERT_TRUE(placed.fits());
  for (const auto& set : placed.groups)
    EXPECT_NE(servers[set[0]].domain(), servers[set[1]].domain());
}

TEST(Placement, TooFewDomainsAreNamed) {
  const std::vector servers{server("a", 1_GiB, "r1"), server("b", 1_GiB, "r1")};
  PlacementRequest request{.groups = 1, .group_bytes = 64_MiB, .width = 1, .copies = 2};
  const auto refused = place(servers, request);
  ASSERT_FALSE(refused.fits());
  EXPECT_THAT(refused.missing(), HasSubstr("it needs 2 failure domains, and there are 1"));
  request.allow_same_domain = true;
  EXPECT_TRUE(place(servers, request).fits());
}

TEST(Placement, MirrorsUseFewSetsOfServers) {
  std::vector<ServerRecord> servers;
  for (int i = 0; i < 6; ++i) servers.push_back(server("s" + std::to_string(i), 8_GiB));
  const auto placed =
      place(servers, {.groups = 40, .group_bytes = 64_MiB, .width = 4, .copies = 2});
  ASSERT_TRUE(placed.fits());
  const std::set<std::vector<std::size_t>> sets{placed.groups.begin(), placed.groups.end()};
  EXPECT_LE(sets.size(), 4U);
}

TEST(Placement, OnlyNamedServersAreUsed) {
  const std::vector servers{server("a", 1_GiB), server("b", 2_GiB)};
  const auto placed =
      place(servers, {.groups = 2, .group_bytes = 64_MiB, .width = 2, .servers = {"a"}});
  ASSERT_TRUE(placed.fits());
  for (const auto& set : placed.groups) EXPECT_EQ(set, std::vector<std::size_t>{0});
}

TEST(Placement, NoServerIsSaid) {
  EXPECT_THAT(place({}, {.groups = 1, .group_bytes = 1_MiB}).missing(),
              HasSubstr("no server is registered"));
}

}  // namespace
}  // namespace remora::volume
