/// The configurations that the rules of mirrors allow.

#include "group_changes.h"

#include <array>
#include <gtest/gtest.h>

#include "support/assert_ok.h"

namespace remora::volume::test {
namespace {

using detail::adopted;
using detail::with_in_sync;
using detail::with_promotion_ended;
using detail::with_syncing;
using detail::without_member;

GroupRecord group_of(int in_sync, int syncing = 0) {
  GroupRecord group;
  group.epoch = 5;
  group.adopted = 3;
  group.generation = 9;
  group.nonce = 1;
  for (int i = 0; i < in_sync + syncing; ++i) {
    Member member;
    member.server = "s" + std::to_string(i);
    member.region = "r" + std::to_string(i);
    member.state = i < in_sync ? MemberState::kInSync : MemberState::kSyncing;
    group.members.push_back(member);
  }
  return group;
}

std::string servers(const GroupRecord& group) {
  std::string text;
  for (const Member& member : group.members) text += member.server;
  return text;
}

TEST(GroupChanges, AdoptionKeepsWhatWasFencedAndRemovesSyncingMembers) {
  const std::array fenced{true, false, true, true};
  const GroupRecord next = adopted(group_of(3, 1), 4, 9, fenced).value();
  EXPECT_EQ(servers(next), "s0s2");
  EXPECT_EQ(next.adopted, 4U);
  EXPECT_EQ(next.epoch, 6U);
  EXPECT_NE(next.nonce, 1U);
  EXPECT_FALSE(next.promoting);
}

TEST(GroupChanges, AdoptionWithoutThePrimaryPromotes) {
  const GroupRecord next = adopted(group_of(3), 4, 9, std::array{false, true, true}).value();
  EXPECT_EQ(servers(next), "s1s2");
  EXPECT_TRUE(next.promoting);
}

TEST(GroupChanges, AdoptionKeepsAPromotion) {
  GroupRecord group = group_of(2);
  group.promoting = true;
  EXPECT_TRUE(adopted(group, 4, 9, std::array{true, true}).value().promoting);
}

TEST(GroupChanges, AdoptionNeedsOneMemberInSync) {
  EXPECT_CODE(adopted(group_of(2, 1), 4, 9, std::array{false, false, true}), kUnreachable);
}

TEST(GroupChanges, ARestoredGroupIsAdoptedWithAllOfItsMembersOrNotAtAll) {
  EXPECT_CODE(adopted(group_of(2), 4, 10, std::array{true, false}), kUnreachable);
  EXPECT_CODE(adopted(group_of(2, 1), 4, 10, std::array{true, true, false}), kUnreachable);
  const GroupRecord next = adopted(group_of(2), 4, 10, std::array{true, true}).value();
  EXPECT_EQ(next.generation, 10U);
  EXPECT_FALSE(detail::is_restored(next, 10));
}

TEST(GroupChanges, RemovalOfABackupDoesNotPromote) {
  const GroupRecord next = without_member(group_of(3), "r1").value();
  EXPECT_EQ(servers(next), "s0s2");
  EXPECT_FALSE(next.promoting);
}

TEST(GroupChanges, RemovalOfThePrimaryPromotesTheNextInSync) {
  GroupRecord group = group_of(2, 1);
  std::swap(group.members[1], group.members[2]);
  const GroupRecord next = without_member(group, "r0").value();
  EXPECT_EQ(servers(next), "s1s2");
  EXPECT_TRUE(next.promoting);
  EXPECT_EQ(next.members[0].state, MemberState::kInSync);
}

TEST(GroupChanges, TheLastMemberInSyncIsNeverRemoved) {
  EXPECT_CODE(without_member(group_of(1, 1), "r0"), kBusy);
  EXPECT_EQ(servers(without_member(group_of(1, 1), "r1").value()), "s0");
  EXPECT_CODE(without_member(group_of(2), "r9"), kNotFound);
}

TEST(GroupChanges, AMemberComesInOnlyWhenNothingElseChanges) {
  Member fresh;
  fresh.region = "new";
  const GroupRecord next = with_syncing(group_of(2), fresh).value();
  EXPECT_EQ(next.members.back().state, MemberState::kSyncing);
  EXPECT_CODE(with_syncing(next, fresh), kBusy);
  GroupRecord promoting = group_of(2);
  promoting.promoting = true;
  EXPECT_CODE(with_syncing(promoting, fresh), kBusy);
  fresh.region = "r1";
  EXPECT_CODE(with_syncing(group_of(2), fresh), kAlreadyExists);
}

TEST(GroupChanges, TheSyncingMemberBecomesInSync) {
  EXPECT_EQ(with_in_sync(group_of(1, 1)).value().members[1].state, MemberState::kInSync);
  EXPECT_CODE(with_in_sync(group_of(2)), kNotFound);
}

TEST(GroupChanges, APromotionEndsOnce) {
  GroupRecord group = group_of(2);
  EXPECT_CODE(with_promotion_ended(group), kBusy);
  group.promoting = true;
  EXPECT_FALSE(with_promotion_ended(group).value().promoting);
}

TEST(GroupChanges, ANewNonceIsTheSameConfiguration) {
  const GroupRecord group = group_of(2);
  GroupRecord next = detail::with_new_nonce(group);
  EXPECT_NE(next.nonce, group.nonce);
  next.nonce = group.nonce;
  EXPECT_EQ(next, group);
}

}  // namespace
}  // namespace remora::volume::test
