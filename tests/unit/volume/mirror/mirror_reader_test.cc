/// Reads by clients that have not claimed the mirror.

#include "mirror_reader.h"

#include "group_changes.h"
#include "mirror_rig.h"

namespace remora::volume::test {
namespace {

class MirrorReaderTest : public MirrorRig {
 protected:
  void SetUp() override {
    MirrorRig::SetUp();
    reader_ = std::make_unique<detail::MirrorReader>(
        *cluster_, cluster_->layout("v").value(),
        std::shared_ptr<detail::MemberOpener>{&opener_, [](detail::MemberOpener*) {}}, options_);
    regions_[0]->set_bytes(kData, filled(4096, 1));
    regions_[1]->set_bytes(kData, filled(4096, 2));
  }
  Status read(Time until) { return reader_->read(0, 0, bytes_, until); }

  std::vector<std::byte> bytes_ = std::vector<std::byte>(4096);
  std::unique_ptr<detail::MirrorReader> reader_;
};

TEST_F(MirrorReaderTest, ReadsThePrimaryAfterAConfirmationThatFollowsItsGrant) {
  const int before = store_->reads();
  ASSERT_OK(read(soon()));
  EXPECT_EQ(bytes_, filled(4096, 1));
  EXPECT_EQ(store_->reads(), before + 2) << "one to find the primary, one after its grant";
  ASSERT_OK(read(soon()));
  EXPECT_EQ(store_->reads(), before + 2);
}

TEST_F(MirrorReaderTest, ConfirmsAgainBeforeTIsOver) {
  ASSERT_OK(read(soon()));
  const int before = store_->reads();
  clock_->advance(options_.times.refreshed_after());
  ASSERT_OK(read(soon()));
  EXPECT_EQ(store_->reads(), before + 1);
}

TEST_F(MirrorReaderTest, WithoutAStoreItReadsForTAndNoLonger) {
  ASSERT_OK(read(soon()));
  store_->set_down(true);
  clock_->advance(options_.times.confirmed_for - 1ms);
  ASSERT_OK(read(soon()));
  clock_->advance(1ms);
  EXPECT_FALSE(read(at_once()).ok());
}

TEST_F(MirrorReaderTest, ReadsNothingWhileThePrimaryChanges) {
  ASSERT_OK(read(soon()));
  const GroupRecord promoting = detail::without_member(stored(), "region-s0").value();
  store_group(promoting);
  clock_->advance(options_.times.confirmed_for);
  EXPECT_CODE(read(at_once()), kTimedOut);
  store_group(detail::with_promotion_ended(promoting).value());
  ASSERT_OK(read(soon()));
  EXPECT_EQ(bytes_, filled(4096, 2));
}

TEST_F(MirrorReaderTest, AFenceMakesItOpenAndConfirmAgain) {
  ASSERT_OK(read(soon()));
  ASSERT_OK(opener_.fence(member_of(0)));
  ASSERT_OK(read(soon()));
  EXPECT_EQ(bytes_, filled(4096, 1));
}

TEST_F(MirrorReaderTest, OfAnExclusiveVolumeOnlyTheWriterReads) {
  options_.exclusive = true;
  const auto writer = claim();
  const Status done = read(soon());
  EXPECT_CODE(done, kBusy);
  EXPECT_NE(done.error().subject().find("one client"), std::string_view::npos);
}

TEST_F(MirrorReaderTest, OfARestoredStoreItReadsNothingBeforeAnAdoption) {
  ASSERT_OK(read(soon()));
  store_->put(cluster_->keys().generation(), generation_json(77));
  clock_->advance(options_.times.confirmed_for);
  EXPECT_CODE(read(at_once()), kTimedOut);
  ASSERT_NE(adopt(), nullptr);
  ASSERT_OK(read(soon()));
}

TEST_F(MirrorReaderTest, AServerOfAnotherVersionIsNamedAtOnce) {
  regions_[0]->die(Error{Code::kConnectionRefused, "hello"}.with_reason(Reason::kVersion));
  const Status done = read(Time::clock::now() + std::chrono::hours{1});
  EXPECT_CODE(done, kConnectionRefused);
  EXPECT_EQ(done.error().subject(), "member s0");
  EXPECT_EQ(done.error().reason(), Reason::kVersion);
}

TEST_F(MirrorReaderTest, AVolumeThatIsGoneIsStale) {
  ASSERT_OK(read(soon()));
  clock_->advance(options_.times.confirmed_for);
  store_->erase(cluster_->keys().volume("v"));
  EXPECT_CODE(read(soon()), kStaleRegion);
}

}  // namespace
}  // namespace remora::volume::test
