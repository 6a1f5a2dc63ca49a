/// A client may send notices of grants that it has or had, within its rights and the region.

#include "server/grant_names.h"

#include <gtest/gtest.h>
#include <limits>

namespace remora::detail {
namespace {

transport::Notice notice(std::uint64_t grant_id, std::uint64_t offset_bytes = 0,
                         std::uint64_t length_bytes = 8) {
  return {
      .grant_id = grant_id, .offset_bytes = offset_bytes, .length_bytes = length_bytes, .tag = 0};
}

TEST(GrantNamesTest, NoticeOfAnOpenGrantNamesItsRegion) {
  GrantNames names;
  const std::uint64_t first = names.add({"a", 64, Rights::kAll});
  const std::uint64_t second = names.add({"b", 64, Rights::kWrite});
  EXPECT_NE(first, second);
  EXPECT_EQ(names.region_of(notice(first)), "a");
  EXPECT_EQ(names.region_of(notice(second, 64, 0)), "b");
}

TEST(GrantNamesTest, NoticeBeyondTheRegionOrWithoutTheRightToWriteIsNotAllowed) {
  GrantNames names;
  const std::uint64_t written = names.add({"a", 64, Rights::kWrite});
  const std::uint64_t read = names.add({"a", 64, Rights::kRead});
  constexpr auto kLargest = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(names.region_of(notice(written, 57, 8)), std::nullopt);
  EXPECT_EQ(names.region_of(notice(written, kLargest, 8)), std::nullopt);
  EXPECT_EQ(names.region_of(notice(written, 8, kLargest)), std::nullopt);
  EXPECT_EQ(names.region_of(notice(read)), std::nullopt);
}

TEST(GrantNamesTest, GrantOfTheProcessBeforeHasItsIdAgainAndLaterOnesAreNew) {
  GrantNames names;
  EXPECT_TRUE(names.add_as(7, {"a", 64, Rights::kAll}));
  EXPECT_TRUE(names.add_as(3, {"b", 64, Rights::kAll}));
  EXPECT_FALSE(names.add_as(7, {"c", 64, Rights::kAll}));
  EXPECT_FALSE(names.add_as(0, {"c", 64, Rights::kAll}));
  EXPECT_FALSE(names.add_as(GrantNames::kMaxNamedId + 1, {"c", 64, Rights::kAll}));
  EXPECT_EQ(names.region_of(notice(7)), "a");
  EXPECT_EQ(names.add({"d", 64, Rights::kAll}), 8U);
}

TEST(GrantNamesTest, NewGrantGetsNoIdThatTheClientHasNamed) {
  GrantNames names;
  names.avoid(5);
  names.avoid(2);
  names.avoid(GrantNames::kMaxNamedId + 1);
  EXPECT_EQ(names.add({"a", 64, Rights::kAll}), 6U);
  EXPECT_TRUE(names.add_as(5, {"b", 64, Rights::kAll})) << "the grant itself keeps it";
}

TEST(GrantNamesTest, NoticeOfAnIdThatWasNeverGivenIsNotAllowed) {
  GrantNames names;
  EXPECT_EQ(names.region_of(notice(1)), std::nullopt);
  names.add({"a", 64, Rights::kAll});
  EXPECT_EQ(names.region_of(notice(0)), std::nullopt);
  EXPECT_EQ(names.region_of(notice(2)), std::nullopt);
  EXPECT_FALSE(names.was_granted(0));
  EXPECT_TRUE(names.was_granted(1));
  EXPECT_FALSE(names.was_granted(2));
}

TEST(GrantNamesTest, ClosedGrantsAreKnownForAWhile) {
  GrantNames names;
  const std::uint64_t first = names.add({"a", 64, Rights::kAll});
  names.close(first);
  EXPECT_EQ(names.region_of(notice(first)), "a");
  for (int i = 0; i < 256; ++i) names.close(names.add({"b", 64, Rights::kAll}));
  EXPECT_EQ(names.region_of(notice(first)), "") << "allowed, of a region that is forgotten";
  EXPECT_TRUE(names.was_granted(first));
}

TEST(GrantNamesTest, SessionThatGoesOnElsewhereKeepsItsIds) {
  GrantNames before;
  const std::uint64_t open = before.add({"a", 64, Rights::kAll});
  const std::uint64_t closed = before.add({"b", 64, Rights::kAll});
  before.close(closed);
  GrantNames after;
  after.take_over(before);
  EXPECT_EQ(after.region_of(notice(open)), "a");
  EXPECT_EQ(after.region_of(notice(closed)), "b");
  EXPECT_EQ(after.add({"c", 64, Rights::kAll}), closed + 1);
}

}  // namespace
}  // namespace remora::detail
