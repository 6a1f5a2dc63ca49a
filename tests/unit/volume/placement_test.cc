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

TEST(Placement, MissingBytesAreThoseOfAFailureDomain) {
  const std::vector servers{server("a", 128_MiB, "r1"), server("b", 64_MiB, "r1"),
                            server("c", 64_MiB, "r2"), server("d", 127_MiB, "r2")};
  PlacementRequest request{.groups = 4, .group_bytes = 64_MiB, .width = 2, .copies = 2};
  const auto apart = place(servers, request);
  ASSERT_FALSE(apart.fits());
  EXPECT_EQ(apart.missing(),
            "r1: 192MiB free in whole groups, 64MiB missing; "
            "r2: 128MiB free in whole groups, 128MiB missing");
  request.allow_same_domain = true;
  const auto anywhere = place(servers, request);
  ASSERT_FALSE(anywhere.fits());
  // Each of the four servers needs room for two groups.
  EXPECT_EQ(anywhere.missing(),
            "r1: 192MiB free in whole groups, 64MiB missing on b; "
            "r2: 128MiB free in whole groups, 128MiB missing on c, d");
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

TEST(Placement, MirrorsAreSpreadEvenly) {
  const std::vector servers{server("a", 1_GiB), server("b", 1_GiB), server("c", 1_GiB)};
  const auto placed = place(servers, {.groups = 3, .group_bytes = 64_MiB, .width = 3, .copies = 2});
  ASSERT_TRUE(placed.fits());
  std::map<std::size_t, int> primaries;
  std::map<std::size_t, int> copies;
  for (const auto& set : placed.groups) {
    ++primaries[set[0]];
    for (const std::size_t each : set) ++copies[each];
  }
  for (const std::size_t each : {0U, 1U, 2U}) {
    EXPECT_EQ(primaries[each], 1) << each;
    EXPECT_EQ(copies[each], 2) << each;
  }
}

TEST(Placement, FourServersMakeTwoSetsOfTwo) {
  std::vector<ServerRecord> servers;
  for (int i = 0; i < 4; ++i) servers.push_back(server("s" + std::to_string(i), 8_GiB));
  const auto placed =
      place(servers, {.groups = 16, .group_bytes = 64_MiB, .width = 4, .copies = 2});
  ASSERT_TRUE(placed.fits());
  std::set<std::set<std::size_t>> sets;
  for (const auto& set : placed.groups) sets.emplace(set.begin(), set.end());
  EXPECT_EQ(sets.size(), 2U);
}

/// A choice by the load alone would put both copies where there is least room, and then fail.
TEST(Placement, MirrorsFitWheneverThereIsAWay) {
  const std::vector uneven{server("a", 4_MiB), server("b", 2_MiB), server("c", 2_MiB)};
  const auto full = place(uneven, {.groups = 4, .group_bytes = 1_MiB, .width = 2, .copies = 2});
  ASSERT_TRUE(full.fits());
  std::map<std::size_t, std::uint64_t> used;
  for (const auto& set : full.groups)
    for (const std::size_t each : set) ++used[each];
  EXPECT_EQ(used, (std::map<std::size_t, std::uint64_t>{{0, 4}, {1, 2}, {2, 2}}));
  // Each group needs a copy on the large server, or on both others.
  const std::vector large{server("a", 100_MiB), server("b", 3_MiB), server("c", 3_MiB)};
  EXPECT_TRUE(place(large, {.groups = 6, .group_bytes = 1_MiB, .width = 3, .copies = 2}).fits());
  const auto refused = place(large, {.groups = 10, .group_bytes = 1_MiB, .width = 2, .copies = 2});
  ASSERT_FALSE(refused.fits());
  ASSERT_EQ(refused.rooms.size(), 3U);
  EXPECT_EQ(refused.rooms[0].missing_bytes, 0U);
  EXPECT_EQ(refused.rooms[1].missing_bytes, 2_MiB);
  EXPECT_EQ(refused.rooms[2].missing_bytes, 2_MiB);
}

TEST(Placement, CopiesOfOneDomainAreOnDifferentServers) {
  const std::vector servers{server("a", 1_GiB, "r1"), server("b", 1_GiB, "r1")};
  PlacementRequest request{
      .groups = 3, .group_bytes = 64_MiB, .width = 1, .copies = 2, .allow_same_domain = true};
  const auto placed = place(servers, request);
  ASSERT_TRUE(placed.fits());
  for (const auto& set : placed.groups) EXPECT_NE(set[0], set[1]);
  request.copies = 3;
  const auto refused = place(servers, request);
  EXPECT_THAT(refused.missing(), HasSubstr("needs 3 servers, and there are 2"));
  ASSERT_EQ(refused.rooms.size(), 1U);
  EXPECT_EQ(refused.rooms[0].domain, "r1");
  EXPECT_EQ(refused.rooms[0].free_bytes, 2_GiB);
}

TEST(Placement, OtherDomainsAreTakenFirstWhereTheyNeedNotBe) {
  const std::vector servers{server("a", 2_GiB, "r1"), server("b", 2_GiB, "r1"),
                            server("c", 1_GiB, "r2")};
  const auto placed = place(
      servers,
      {.groups = 1, .group_bytes = 64_MiB, .width = 1, .copies = 2, .allow_same_domain = true});
  ASSERT_TRUE(placed.fits());
  EXPECT_EQ(placed.groups[0], (std::vector<std::size_t>{0, 2}));
}

TEST(Placement, NewRowUsesTheSetsOfTheRowAbove) {
  const std::vector servers{server("a", 1_GiB), server("b", 1_GiB), server("c", 2_GiB)};
  const auto placed =
      place(servers,
            {.groups = 2, .group_bytes = 64_MiB, .width = 2, .copies = 2, .above = {{1, 0}, {}}});
  ASSERT_TRUE(placed.fits());
  EXPECT_EQ(placed.groups[0], (std::vector<std::size_t>{1, 0}));
}

TEST(Replacement, KeepsDomainsApart) {
  const std::vector servers{server("a", 1_GiB, "r1"), server("b", 4_GiB, "r1"),
                            server("c", 1_GiB, "r2"), server("d", 2_GiB, "r2")};
  ReplacementRequest request{.region_bytes = 64_MiB, .kept = {"a"}};
  EXPECT_EQ(place_replacement(servers, request), 3U);
  request.sets = {{"a", "c"}};
  EXPECT_EQ(place_replacement(servers, request), 2U);
  request.excluded = {"c", "d"};
  EXPECT_EQ(place_replacement(servers, request), std::nullopt);
  request.allow_same_domain = true;
  EXPECT_EQ(place_replacement(servers, request), 1U);
}

TEST(Replacement, NeedsTheRoom) {
  const std::vector servers{server("a", 1_GiB), server("b", 64_MiB)};
  ReplacementRequest request{.region_bytes = 64_MiB, .kept = {"a"}};
  EXPECT_EQ(place_replacement(servers, request), 1U);
  request.region_bytes += 4096;
  EXPECT_EQ(place_replacement(servers, request), std::nullopt);
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
