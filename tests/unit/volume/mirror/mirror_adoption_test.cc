/// How a claimant takes a group over, also after its store was restored.

#include "mirror_adoption.h"

#include <span>

#include "mirror_rig.h"

namespace remora::volume::test {
namespace {

class MirrorAdoptionTest : public MirrorRig {
 protected:
  void put_word(std::size_t server, std::uint64_t word) {
    regions_[server]->set_bytes(detail::word_offset(0), std::as_bytes(std::span{&word, 1}));
  }
};

TEST_F(MirrorAdoptionTest, CopiesWhatAnyMemberMarksFromThePrimary) {
  regions_[0]->set_bytes(kData, filled(4096, 1));
  regions_[1]->set_bytes(kData, filled(4096, 2));
  regions_[2]->set_bytes(kData + 2_MiB, filled(4096, 3));
  put_word(1, 1);
  put_word(2, 4);
  ASSERT_NE(adopt(), nullptr);
  expect_equal_members();
  EXPECT_EQ(data_of(2, 0, 4096), filled(4096, 1));
  EXPECT_EQ(data_of(2, 2_MiB, 4096), filled(4096, 0));
  for (std::size_t server = 0; server < 3; ++server) EXPECT_EQ(word_of(server), 0U);
}

TEST_F(MirrorAdoptionTest, FencesEachMemberAndRemovesThoseThatCannotBe) {
  regions_[1]->die();
  ASSERT_NE(adopt(), nullptr);
  EXPECT_EQ(servers_of(stored()), (std::vector<std::string>{"s0", "s2"}));
  EXPECT_EQ(regions_[0]->fences(), 1);
  EXPECT_EQ(regions_[2]->fences(), 1);
  ASSERT_EQ(events_.size(), 1U);
  EXPECT_EQ(events_[0].kind, VolumeEventKind::kMemberRemoved);
  EXPECT_EQ(events_[0].server, "s1");
  EXPECT_EQ(events_[0].error.subject(), "v, group 0, member s1");
}

TEST_F(MirrorAdoptionTest, AMemberOfAnotherVersionIsNamedAndStays) {
  const GroupRecord before = stored();
  regions_[1]->die(Error{Code::kConnectionRefused, "hello"}.with_reason(Reason::kVersion));
  const auto adopted = try_to_adopt();
  EXPECT_CODE(adopted, kConnectionRefused);
  EXPECT_EQ(adopted.error().subject(), "v, group 0, member s1");
  EXPECT_NE(adopted.error().message().find("upgrade the older one"), std::string::npos);
  EXPECT_EQ(stored(), before);
  EXPECT_TRUE(events_.empty());
}

TEST_F(MirrorAdoptionTest, AFenceThatComesLateHidesNoMark) {
  regions_[1]->set_bytes(kData, filled(4096, 2));
  put_word(1, 1);
  const auto group = try_to_adopt();
  ASSERT_OK(group);
  ASSERT_OK((*group)->control().converge(soon()));
  ASSERT_OK(regions_[1]->grant(true));
  ASSERT_OK((*group)->repair(soon()));
  EXPECT_EQ(stored().members.size(), 3U);
  expect_equal_members();
}

TEST_F(MirrorAdoptionTest, WithoutThePrimaryItWaitsT) {
  regions_[0]->die();
  const auto group = adopt();
  ASSERT_NE(group, nullptr);
  EXPECT_TRUE(stored().promoting);
  EXPECT_CODE(write_filled(*group, 0, 1, at_once()), kTimedOut);
  for (int i = 0; i < 3; ++i) group->maintain(false);
  EXPECT_TRUE(stored().promoting);
  clock_->advance(options_.times.readers_gone_after());
  group->maintain(false);
  EXPECT_FALSE(stored().promoting);
  ASSERT_OK(write_filled(*group, 0, 1, soon()));
}

TEST_F(MirrorAdoptionTest, APromotionThatItFindsIsWaitedForAnew) {
  GroupRecord found = stored();
  found.promoting = true;
  store_group(found);
  const auto group = adopt();
  ASSERT_NE(group, nullptr);
  group->maintain(false);
  EXPECT_TRUE(stored().promoting);
  clock_->advance(options_.times.readers_gone_after());
  group->maintain(false);
  EXPECT_FALSE(stored().promoting);
}

TEST_F(MirrorAdoptionTest, ALateWriteOfTheWriterBeforeIsRefused) {
  const auto first = adopt();
  ASSERT_NE(first, nullptr);
  regions_[1]->fail_writes({WriteFault::kNone, WriteFault::kLate});
  regions_[1]->set_settles(false);
  store_->set_down(true);
  EXPECT_CODE(write_in_vain(*first, 0, 7), kIndeterminate);
  store_->set_down(false);
  regions_[1]->set_settles(true);
  const auto second = adopt();
  ASSERT_NE(second, nullptr);
  regions_[1]->deliver_late();
  expect_equal_members();
  EXPECT_EQ(stored().members.size(), 3U);
}

TEST_F(MirrorAdoptionTest, NoMemberThatCanBeFencedIsAnError) {
  for (auto& region : regions_) region->die();
  EXPECT_CODE(try_to_adopt(), kConnectionLost);
  GroupRecord lost = stored();
  lost.members.clear();
  lost.lost = true;
  store_group(lost);
  EXPECT_CODE(try_to_adopt(), kStaleRegion);
}

TEST_F(MirrorAdoptionTest, AnAnswerThatIsLostIsFoundAgain) {
  const auto claimed = claim();
  store_->fail_next(StoreFault::kAnswerLost);
  const auto group =
      detail::adopt_group(claimed, stored(), store_->value(group_key()), options_, opener_, soon());
  ASSERT_OK(group);
  EXPECT_EQ(stored().adopted, claimed->writer_epoch());
}

class MirrorRestoreTest : public MirrorAdoptionTest {
 protected:
  void SetUp() override {
    MirrorAdoptionTest::SetUp();
    const auto group = adopt();
    ASSERT_NE(group, nullptr);
    snapshot_ = stored();
    // After the snapshot: s2 is removed, and data is written without it.
    if (ahead_) {
      ASSERT_OK(group->remove_member("region-s2", soon()));
      ASSERT_OK(write_filled(*group, 0, 1, soon()));
    }
    store_group(snapshot_);
    store_->put(cluster_->keys().generation(), generation_json(77));
  }
  bool ahead_ = true;
  GroupRecord snapshot_;
};

TEST_F(MirrorRestoreTest, AMemberThatIsAheadStopsTheAdoption) {
  const auto adopted = try_to_adopt();
  EXPECT_CODE(adopted, kProtocol);
  EXPECT_NE(adopted.error().subject().find("member s0"), std::string_view::npos);
  EXPECT_EQ(stored(), snapshot_);
}

TEST_F(MirrorRestoreTest, AMemberThatCannotBeFencedStopsTheAdoption) {
  regions_[0]->die();
  EXPECT_CODE(try_to_adopt(), kConnectionLost);
  EXPECT_EQ(stored(), snapshot_);
}

class MirrorOldSnapshotTest : public MirrorRestoreTest {
 protected:
  MirrorOldSnapshotTest() { ahead_ = false; }
};

TEST_F(MirrorOldSnapshotTest, MembersThatAreNotAheadAreAdopted) {
  const auto group = adopt();
  ASSERT_NE(group, nullptr);
  EXPECT_EQ(stored().generation, 77U);
  ASSERT_OK(write_filled(*group, 0, 1, soon()));
}

}  // namespace
}  // namespace remora::volume::test
