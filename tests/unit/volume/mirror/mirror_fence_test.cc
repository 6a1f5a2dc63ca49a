/// A writer that has its claim, and whose grants were taken away by a fence.

#include <memory>

#include "mirror_group_test.h"

namespace remora::volume::test {
namespace {

class MirrorFenceTest : public MirrorGroupTest {};

/// Of an older claimant, whose claim has ended since.
TEST_F(MirrorFenceTest, AFenceThatComesLateCostsNoMember) {
  ASSERT_OK(write(0, 1));
  ASSERT_OK(regions_[1]->grant(true));
  ASSERT_OK(write(0, 2));
  EXPECT_EQ(regions_[1]->fences(), 3) << "of the claim, the late one, and that of this writer";
  for (auto& region : regions_) ASSERT_OK(region->grant(true));
  expect_read(0, 2);
  ASSERT_OK(write(1_MiB, 3));
  EXPECT_EQ(regions_[0]->fences(), 3);
  EXPECT_EQ(stored().members.size(), 3U);
  EXPECT_FALSE(group_->control().lost());
  EXPECT_TRUE(events_.empty());
  expect_equal_members();
  // Of an operation that had begun with the grant of before.
  const Error before = Error{Code::kAccessRefused, "write"}.with_reason(Reason::kFenced);
  ASSERT_OK(group_->control().member_failed(0, before, soon()));
  EXPECT_EQ(regions_[0]->fences(), 3) << "it was opened again already";
}

TEST_F(MirrorFenceTest, AGrantIsUsedAfterAConfirmationOnly) {
  ASSERT_OK(write(0, 1));
  ASSERT_OK(regions_[1]->grant(true));
  store_->set_down(true);
  EXPECT_CODE(write_in_vain(*group_, 0, 2), kIndeterminate);
  EXPECT_EQ(data_of(1, 0, 4096), filled(4096, 1));
  EXPECT_EQ(regions_[1]->fences(), 2) << "it may be another client's claim";
  store_->set_down(false);
  ASSERT_OK(write(0, 3));
  EXPECT_EQ(stored().members.size(), 3U);
  expect_equal_members();
}

TEST_F(MirrorFenceTest, AMemberThatCannotBeOpenedAgainIsRemoved) {
  ASSERT_OK(write(0, 1));
  ASSERT_OK(regions_[1]->grant(true));
  const auto gone = std::make_shared<FakeRegion>("gone", 0, log_);
  gone->die();
  opener_.add("region-s1", gone);
  ASSERT_OK(write(0, 2));
  EXPECT_EQ(servers_of(stored()), (std::vector<std::string>{"s0", "s2"}));
  expect_equal_members();
}

}  // namespace
}  // namespace remora::volume::test
