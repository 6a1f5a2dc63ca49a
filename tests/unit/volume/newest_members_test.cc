// The configuration of a group, made again from the headers of its regions.

#include "newest_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace remora::volume::detail {
namespace {

using ::testing::ElementsAre;

FoundMember found(std::string region, std::uint64_t writer_epoch, std::uint64_t epoch,
                  MemberRole role, bool promoting = false) {
  FoundMember each;
  each.member.region = std::move(region);
  each.member.state = MemberState::kSyncing;  // what a list of regions does not tell
  each.header = {.generation = 5,
                 .volume_id = 7,
                 .group = 0,
                 .writer_epoch = writer_epoch,
                 .epoch = epoch,
                 .role = role,
                 .promoting = promoting};
  return each;
}

std::vector<std::string> regions_of(const GroupRecord& group) {
  std::vector<std::string> names;
  for (const Member& member : group.members) {
    EXPECT_EQ(member.state, MemberState::kInSync) << member.region;
    names.push_back(member.region);
  }
  return names;
}

GroupRecord old_record() {
  GroupRecord group;
  group.epoch = 3;
  group.adopted = 1;
  group.generation = 4;
  group.members.push_back({.server = "s0", .region = "removed"});
  return group;
}

TEST(NewestMembers, ThoseOfTheNewestConfigurationAreTaken) {
  const auto next = with_newest_members(
      old_record(),
      {found("removed", 2, 8, MemberRole::kPrimary), found("backup", 2, 9, MemberRole::kInSync),
       found("primary", 2, 9, MemberRole::kPrimary), found("syncing", 2, 9, MemberRole::kSyncing)});
  ASSERT_TRUE(next.ok());
  EXPECT_THAT(regions_of(*next), ElementsAre("primary", "backup"));
  EXPECT_EQ(next->epoch, 9U);
  EXPECT_EQ(next->adopted, 2U);
  EXPECT_EQ(next->generation, 5U);
  EXPECT_TRUE(next->restored);
  EXPECT_FALSE(next->promoting);
  // The claimant then finds no header that is ahead.
  EXPECT_FALSE(found("primary", 2, 9, MemberRole::kPrimary).header.is_ahead_of(*next));
}

TEST(NewestMembers, NewerWriterCountsMoreThanANewerConfiguration) {
  const auto next = with_newest_members(old_record(), {found("old", 2, 9, MemberRole::kPrimary),
                                                       found("new", 3, 4, MemberRole::kPrimary)});
  ASSERT_TRUE(next.ok());
  EXPECT_THAT(regions_of(*next), ElementsAre("new"));
}

TEST(NewestMembers, WithoutItsPrimaryTheGroupIsPromoting) {
  const auto backup =
      with_newest_members(old_record(), {found("backup", 2, 9, MemberRole::kInSync)});
  ASSERT_TRUE(backup.ok());
  EXPECT_TRUE(backup->promoting);
  const auto promoting =
      with_newest_members(old_record(), {found("primary", 2, 9, MemberRole::kPrimary, true)});
  ASSERT_TRUE(promoting.ok());
  EXPECT_TRUE(promoting->promoting);
}

TEST(NewestMembers, UnusedGroupStaysAsItIs) {
  FoundMember unused;
  unused.member.region = "unused";
  EXPECT_EQ(with_newest_members(old_record(), {unused}).value(), old_record());
}

/// Else a region that was left on a server long ago would keep the group from being restored.
TEST(NewestMembers, RegionsThatWereRemovedBeforeTheRecordDoNotCount) {
  FoundMember left = found("left", 1, 2, MemberRole::kPrimary);
  left.header.generation = 3;
  EXPECT_EQ(with_newest_members(old_record(), {left}).value(), old_record());
  const auto next =
      with_newest_members(old_record(), {left, found("newer", 2, 9, MemberRole::kPrimary)});
  ASSERT_TRUE(next.ok());
  EXPECT_THAT(regions_of(*next), ElementsAre("newer"));
  // Named by the record: its header is that of a change that was not completed.
  left.member.region = "removed";
  EXPECT_THAT(regions_of(with_newest_members(old_record(), {left}).value()),
              ElementsAre("removed"));
}

TEST(NewestMembers, OnlySyncingMembersAreNotEnough) {
  const auto refused =
      with_newest_members(old_record(), {found("syncing", 2, 9, MemberRole::kSyncing)});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Code::kStaleRegion);
}

TEST(NewestMembers, TwoGenerationsAreRefused) {
  FoundMember other = found("other", 9, 9, MemberRole::kPrimary);
  other.header.generation = 6;
  const auto refused =
      with_newest_members(old_record(), {found("one", 2, 9, MemberRole::kPrimary), other});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Code::kProtocol);
}

}  // namespace
}  // namespace remora::volume::detail
