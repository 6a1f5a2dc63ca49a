/// How a member becomes one in sync, while the group is written.

#include "mirror_group_test.h"

namespace remora::volume::test {
namespace {

class MirrorRebuildTest : public MirrorGroupTest {
 protected:
  void SetUp() override {
    MirrorGroupTest::SetUp();
    ASSERT_OK(write(0, 1, 64_KiB));
    ASSERT_OK(write(2_MiB, 2));
    regions_[2]->die();
    ASSERT_OK(write(1_MiB, 3));
    ASSERT_EQ(stored().members.size(), 2U);
  }
};

TEST_F(MirrorRebuildTest, ANewMemberGetsMarksWritesAndCopiesThenIsInSync) {
  ASSERT_OK(group_->add_syncing(member_of(3), soon()));
  EXPECT_EQ(servers_of(stored()), (std::vector<std::string>{"s0", "s1", "s3 syncing"}));
  ASSERT_OK(write(4_KiB, 9));
  EXPECT_EQ(data_of(3, 4_KiB, 4096), filled(4096, 9));
  for (std::uint32_t zone = 0; zone < group_->zone_count(); ++zone)
    ASSERT_OK(group_->copy_zone(zone, soon()));
  ASSERT_OK(group_->make_in_sync(soon()));
  EXPECT_EQ(servers_of(stored()), (std::vector<std::string>{"s0", "s1", "s3"}));
  EXPECT_EQ(word_of(3), word_of(0)) << "the bitmap is copied";
  expect_equal_members();
  ASSERT_OK(write(0, 5));
  expect_equal_members();
}

TEST_F(MirrorRebuildTest, AMemberThatMissedAWriteNeverBecomesInSync) {
  ASSERT_OK(group_->add_syncing(member_of(3), soon()));
  regions_[3]->fail_writes({WriteFault::kRefused});
  ASSERT_OK(write(4_KiB, 9));
  EXPECT_CODE(group_->make_in_sync(soon()), kBusy);
  EXPECT_CODE(group_->copy_zone(0, soon()), kBusy);
  group_->maintain(false);
  EXPECT_EQ(servers_of(stored()), (std::vector<std::string>{"s0", "s1"}));
}

TEST_F(MirrorRebuildTest, TheBitmapIsNotCopiedWhileAnotherMemberComesIn) {
  ASSERT_OK(group_->add_syncing(member_of(3), soon()));
  for (std::uint32_t zone = 0; zone < group_->zone_count(); ++zone)
    ASSERT_OK(group_->copy_zone(zone, soon()));
  log_.take();
  group_->control().read_gate().close();  // as add_syncing() does
  EXPECT_CODE(group_->make_in_sync(at_once()), kTimedOut);
  EXPECT_TRUE(log_.take().empty());
  group_->control().read_gate().open();
  ASSERT_OK(group_->make_in_sync(soon()));
}

TEST_F(MirrorRebuildTest, AnEntryOfUnknownOutcomeEndsWhenItIsKnown) {
  store_->fail_next(StoreFault::kLateAndDown);
  EXPECT_CODE(group_->add_syncing(member_of(3), at_once()), kIndeterminate);
  store_->set_down(false);
  EXPECT_TRUE(store_->apply_late());
  // No rebuild goes on with it: the writer takes it out, so that another one can begin.
  group_->maintain(false);
  EXPECT_EQ(servers_of(stored()), (std::vector<std::string>{"s0", "s1"}));
  ASSERT_OK(group_->add_syncing(member_of(3), soon()));
}

TEST_F(MirrorRebuildTest, OneMemberIsBuiltAtATime) {
  ASSERT_OK(group_->add_syncing(member_of(3), soon()));
  EXPECT_CODE(group_->add_syncing(member_of(3), soon()), kBusy);
}

TEST_F(MirrorRebuildTest, ARebuildGoesOnWithAnotherPrimary) {
  ASSERT_OK(group_->add_syncing(member_of(3), soon()));
  ASSERT_OK(group_->copy_zone(0, soon()));
  regions_[0]->die();
  ASSERT_OK(group_->copy_zone(1, soon()));
  ASSERT_OK(group_->copy_zone(2, soon()));
  wait_for_readers();
  ASSERT_OK(group_->make_in_sync(soon()));
  EXPECT_EQ(servers_of(stored()), (std::vector<std::string>{"s1", "s3"}));
  expect_equal_members();
}

}  // namespace
}  // namespace remora::volume::test
