/// Transactions on a group, and the claim that they compare.

#include "group_key.h"

#include <array>

#include "group_changes.h"
#include "mirror_rig.h"

namespace remora::volume::test {
namespace {

using detail::GroupKey;
using detail::without_member;

class GroupKeyTest : public MirrorRig {
 protected:
  void SetUp() override {
    MirrorRig::SetUp();
    claim_ = claim();
    key_ = std::make_unique<GroupKey>(claim_, stored(), store_->value(group_key()));
    GroupRecord next = stored();
    next.adopted = claim_->writer_epoch();
    ++next.epoch;
    ASSERT_OK(key_->commit(next));
  }
  [[nodiscard]] GroupRecord smaller() {
    return without_member(key_->record(), "region-s1").value();
  }

  std::shared_ptr<detail::VolumeClaim> claim_;
  std::unique_ptr<GroupKey> key_;
};

TEST_F(GroupKeyTest, ATransactionComparesTheGroupsValue) {
  GroupRecord other = stored();
  other.adopted = 0;
  other.nonce = 99;
  store_group(other);
  EXPECT_CODE(key_->commit(smaller()), kAccessRefused);
  EXPECT_TRUE(claim_->lost());
  EXPECT_EQ(stored(), other);
}

TEST_F(GroupKeyTest, ATransactionComparesTheWriterEpoch) {
  const auto other = claim();
  EXPECT_EQ(other->writer_epoch(), claim_->writer_epoch() + 1);
  EXPECT_CODE(key_->commit(smaller()), kAccessRefused);
  EXPECT_TRUE(claim_->lost());
  EXPECT_FALSE(other->lost());
}

TEST_F(GroupKeyTest, AnIdentityThatNoRecordHoldsIsRefused) {
  for (const std::string& identity :
       {std::string(201, 'i'), std::string{"line\n"}, std::string{"\xff"}}) {
    options_.identity = identity;
    EXPECT_CODE(detail::VolumeClaim::claim(*cluster_, "v", options_), kInvalidArgument);
  }
  options_.identity = std::string(200, 'i');
  ASSERT_OK(detail::VolumeClaim::claim(*cluster_, "v", options_));
  EXPECT_EQ(cluster_->layout("v").value().volume.writer, options_.identity);
}

TEST_F(GroupKeyTest, ATransactionComparesTheGeneration) {
  store_->put(cluster_->keys().generation(), generation_json(77));
  EXPECT_CODE(key_->commit(smaller()), kAccessRefused);
  EXPECT_TRUE(claim_->lost());
}

TEST_F(GroupKeyTest, AnUnknownOutcomeFreezesUntilTheNonceIsAnother) {
  store_->fail_next(StoreFault::kLate);
  const GroupRecord before = key_->record();
  EXPECT_CODE(key_->commit(smaller()), kIndeterminate);
  EXPECT_TRUE(key_->frozen());
  ASSERT_OK(key_->thaw());
  EXPECT_FALSE(key_->frozen());
  EXPECT_EQ(key_->record().members.size(), before.members.size());
  EXPECT_FALSE(store_->apply_late()) << "it compares a value that is gone";
  EXPECT_EQ(stored(), key_->record());
}

TEST_F(GroupKeyTest, ALostTransactionThatAppliedIsTakenOver) {
  store_->fail_next(StoreFault::kAnswerLost);
  const GroupRecord wanted = smaller();
  EXPECT_CODE(key_->commit(wanted), kIndeterminate);
  ASSERT_OK(key_->thaw());
  EXPECT_EQ(key_->record(), wanted);
  EXPECT_FALSE(claim_->lost());
}

TEST_F(GroupKeyTest, AThawWithoutAnAnswerStaysFrozen) {
  store_->fail_next(StoreFault::kLate);
  EXPECT_CODE(key_->commit(smaller()), kIndeterminate);
  store_->set_down(true);
  EXPECT_CODE(key_->thaw(), kUnreachable);
  EXPECT_TRUE(key_->frozen());
  store_->set_down(false);
  store_->fail_next(StoreFault::kAnswerLost);
  EXPECT_CODE(key_->thaw(), kIndeterminate);
  EXPECT_TRUE(key_->frozen());
  ASSERT_OK(key_->thaw());
  EXPECT_FALSE(store_->apply_late());
}

TEST_F(GroupKeyTest, ATransactionThatWasNotSentChangesNothing) {
  store_->fail_next(StoreFault::kNotSent);
  EXPECT_CODE(key_->commit(smaller()), kUnreachable);
  EXPECT_FALSE(key_->frozen());
  ASSERT_OK(key_->commit(smaller()));
}

TEST_F(GroupKeyTest, AConfirmationNoticesAnotherWriter) {
  ASSERT_OK(key_->confirm());
  static_cast<void>(claim());
  EXPECT_CODE(key_->confirm(), kAccessRefused);
  EXPECT_TRUE(claim_->lost());
}

using VolumeClaimTest = MirrorRig;

TEST_F(VolumeClaimTest, IsHeldAgainstAllThatDoNotSteal) {
  const auto first = claim();
  options_.steal = false;
  const auto second = detail::VolumeClaim::claim(*cluster_, "v", options_);
  EXPECT_CODE(second, kBusy);
  EXPECT_EQ(second.error().subject(), first->volume().writer);
  options_.steal = true;
  ASSERT_OK(detail::VolumeClaim::claim(*cluster_, "v", options_));
  EXPECT_CODE(first->release(false), kAccessRefused);
}

TEST_F(VolumeClaimTest, ReleaseLetsTheNextOneInAndKeepsTheEpoch) {
  const auto first = claim();
  ASSERT_OK(first->release(false));
  EXPECT_TRUE(first->lost());
  const VolumeRecord record =
      parse_volume("v", store_->value(cluster_->keys().volume("v"))).value();
  EXPECT_EQ(record.writer, "");
  EXPECT_EQ(record.writer_epoch, first->writer_epoch());
  options_.steal = false;
  EXPECT_EQ(claim()->writer_epoch(), first->writer_epoch() + 1);
}

TEST_F(VolumeClaimTest, ALeaseThatHasLapsedIsRenewedWhileNoOtherClientHasClaimed) {
  const auto first = claim();
  store_->lapse();
  ASSERT_OK(first->keep_alive());
  EXPECT_EQ(store_->value(cluster_->keys().writer("v")), first->volume().writer);
  store_->lapse();
  static_cast<void>(claim());
  EXPECT_CODE(first->keep_alive(), kAccessRefused);
  EXPECT_TRUE(first->lost());
}

TEST_F(VolumeClaimTest, ARenewalNoticesAClaimThatWasStolen) {
  const auto first = claim();
  ASSERT_OK(first->keep_alive());
  static_cast<void>(claim());
  EXPECT_CODE(first->keep_alive(), kAccessRefused);
  EXPECT_TRUE(first->lost());
}

/// Else a key that a lost transaction has bound to a lease of before goes while the claim is alive.
TEST_F(VolumeClaimTest, TheLivenessKeyIsAlwaysThatOfTheLeaseThatIsRenewed) {
  const std::string key = cluster_->keys().writer("v");
  const auto first = claim();
  store_->lapse();
  store_->fail_next(StoreFault::kLate);
  EXPECT_CODE(first->keep_alive(), kTimedOut);
  ASSERT_OK(first->keep_alive());
  EXPECT_TRUE(store_->apply_late());
  ASSERT_OK(first->keep_alive());
  EXPECT_EQ(store_->lease_of(key), store_->renewed());
  EXPECT_EQ(store_->value(key), first->volume().writer);
}

TEST_F(VolumeClaimTest, ALostKeyIsWrittenAgainAndNoOtherClaimIsLetIn) {
  const std::string key = cluster_->keys().writer("v");
  const auto first = claim();
  store_->lapse();
  store_->fail_next(StoreFault::kLate);
  EXPECT_CODE(first->keep_alive(), kTimedOut);
  store_->lapse();
  EXPECT_FALSE(store_->apply_late()) << "its lease has ended";
  ASSERT_OK(first->keep_alive());
  options_.steal = false;
  EXPECT_CODE(detail::VolumeClaim::claim(*cluster_, "v", options_), kBusy);
}

TEST_F(VolumeClaimTest, AConfirmationChangesNothing) {
  const auto first = claim();
  const int commits = store_->commits();
  ASSERT_OK(first->confirm());
  EXPECT_EQ(store_->commits(), commits);
  static_cast<void>(claim());
  EXPECT_CODE(first->confirm(), kAccessRefused);
}

TEST_F(VolumeClaimTest, TwoThatRaceHaveDifferentEpochs) {
  store_->fail_next(StoreFault::kAnswerLost);
  const auto first = claim();
  EXPECT_EQ(first->writer_epoch(), 1U);
  EXPECT_FALSE(first->lost());
  EXPECT_EQ(claim()->writer_epoch(), 2U);
}

TEST_F(VolumeClaimTest, StripedVolumesNeedNone) {
  VolumeRecord volume = parse_volume("v", store_->value(cluster_->keys().volume("v"))).value();
  volume.kind = Kind::kStriped;
  volume.copies = 1;
  store_->put(cluster_->keys().volume("v"), to_json(volume));
  EXPECT_CODE(detail::VolumeClaim::claim(*cluster_, "v", options_), kUnsupported);
}

TEST_F(VolumeClaimTest, AConfirmationWhileExclusiveIsEndedDoesNotLoseTheClaim) {
  options_.exclusive = true;
  const auto claimed = claim();
  const std::array keys{cluster_->keys().generation(), cluster_->keys().volume("v")};
  const Snapshot before = store_->get(keys, 1s).value();
  Status meanwhile = Error{Code::kInternal};
  store_->before_answer = [&] { meanwhile = claimed->confirm(); };
  ASSERT_OK(claimed->end_exclusive());
  store_->before_answer = {};
  ASSERT_OK(meanwhile);
  EXPECT_TRUE(claimed->check(before)) << "it was read before, and is looked at now";
  ASSERT_OK(claimed->confirm());
  static_cast<void>(claim());
  EXPECT_CODE(claimed->confirm(), kAccessRefused);
}

TEST_F(VolumeClaimTest, ExclusiveStaysUntilItIsEnded) {
  options_.exclusive = true;
  static_cast<void>(claim());
  options_.exclusive = false;
  const auto second = claim();
  EXPECT_TRUE(second->volume().exclusive);
  EXPECT_TRUE(second->found_exclusive());
  ASSERT_OK(second->end_exclusive());
  EXPECT_FALSE(second->found_exclusive());
  EXPECT_FALSE(parse_volume("v", store_->value(cluster_->keys().volume("v"))).value().exclusive);
  ASSERT_OK(second->keep_alive());
  ASSERT_OK(second->release(false));
}

}  // namespace
}  // namespace remora::volume::test
