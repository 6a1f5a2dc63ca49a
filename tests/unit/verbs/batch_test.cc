#include <arpa/inet.h>

#include "fake_verbs.h"

namespace remora::test {
namespace {

using verbs::LocalSlice;
using verbs::RemoteSlice;

class BatchTest : public FakeTest {
 protected:
  void SetUp() override {
    rig_.emplace(open());
    pair_.emplace(rig_->connected());
  }
  void TearDown() override {
    pair_.reset();
    rig_.reset();
    FakeTest::TearDown();
  }
  [[nodiscard]] LocalSlice local(std::uint64_t offset, std::uint64_t length) const {
    return rig_->memory.slice(offset, length);
  }
  static RemoteSlice remote(std::uint64_t length = 4096) { return {1 << 20, length, 55}; }
  [[nodiscard]] const std::vector<ibv_send_wr>& last() const { return fake_.sent.back(); }

  std::optional<FakeRig> rig_;
  std::optional<verbs::QueuePair<verbs::Rc>> pair_;
};

TEST_F(BatchTest, ChainIsOnePost) {
  auto batch = pair_->start();
  batch.write(1, local(0, 64), remote()).unsignaled();
  batch.read(2, local(64, 64), remote()).fenced();
  batch.send_with_immediate(3, local(0, 8), 0x01020304).solicited();
  ASSERT_OK(batch.post());
  EXPECT_EQ(fake_.uses("post_send"), 1);
  ASSERT_EQ(last().size(), 3U);
  EXPECT_EQ(last()[0].opcode, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(last()[0].send_flags, 0U);
  EXPECT_EQ(last()[0].wr.rdma.remote_addr, 1U << 20);
  EXPECT_EQ(last()[0].wr.rdma.rkey, 55U);
  EXPECT_EQ(last()[1].send_flags, unsigned{IBV_SEND_SIGNALED} | IBV_SEND_FENCE);
  EXPECT_EQ(last()[2].imm_data, htonl(0x01020304));
  EXPECT_EQ(last()[2].send_flags, unsigned{IBV_SEND_SIGNALED} | IBV_SEND_SOLICITED);
  EXPECT_EQ(fake_.sent_elements[1][0].addr, rig_->memory.address() + 64);
  EXPECT_EQ(fake_.sent_elements[1][0].lkey, rig_->memory.lkey());
}

TEST_F(BatchTest, IsReusableAfterEachPost) {
  auto batch = pair_->start();
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < 5; ++i) batch.write(i, local(0, 8), remote());
    ASSERT_OK(batch.post());
    EXPECT_EQ(last().size(), 5U);
    EXPECT_EQ(batch.taken(), 5U);
    EXPECT_EQ(batch.size(), 0U);
  }
  ASSERT_OK(batch.post());  // empty
  EXPECT_EQ(fake_.uses("post_send"), 3);
}

TEST_F(BatchTest, AtomicsCarryTheirOperands) {
  auto batch = pair_->start();
  batch.compare_swap(1, local(0, 8), remote(), 5, 6);
  batch.fetch_add(2, local(8, 8), remote(), 7);
  ASSERT_OK(batch.post());
  EXPECT_EQ(last()[0].opcode, IBV_WR_ATOMIC_CMP_AND_SWP);
  EXPECT_EQ(last()[0].wr.atomic.compare_add, 5U);
  EXPECT_EQ(last()[0].wr.atomic.swap, 6U);
  EXPECT_EQ(last()[0].wr.atomic.rkey, 55U);
  EXPECT_EQ(last()[1].opcode, IBV_WR_ATOMIC_FETCH_AND_ADD);
  EXPECT_EQ(last()[1].wr.atomic.compare_add, 7U);
}

TEST_F(BatchTest, MisalignedAtomicIsRefusedAndNothingPosted) {
  auto batch = pair_->start();
  batch.write(1, local(0, 8), remote());
  batch.fetch_add(2, local(0, 8), RemoteSlice{(1 << 20) + 4, 8, 55}, 1);
  batch.write(3, local(0, 8), remote());
  const Status posted = batch.post();
  EXPECT_CODE(posted, kMisaligned);
  EXPECT_EQ(posted.error().subject(), "request 1");
  EXPECT_EQ(batch.taken(), 0U);
  EXPECT_EQ(fake_.uses("post_send"), 0);
  batch.write(4, local(0, 8), remote());
  ASSERT_OK(batch.post());  // the misuse is forgotten with its chain
  EXPECT_EQ(last().size(), 1U);
}

TEST_F(BatchTest, AtomicOfAnotherSizeIsInvalid) {
  auto batch = pair_->start();
  batch.fetch_add(1, local(0, 4), remote(), 1);
  EXPECT_CODE(batch.post(), kInvalidArgument);
  batch.compare_swap(1, local(0, 8), remote(4), 1, 1);
  EXPECT_CODE(batch.post(), kOutOfRange);
}

TEST_F(BatchTest, SliceOutsideIsOutOfRange) {
  auto batch = pair_->start();
  batch.write(1, local(4090, 8), remote());
  EXPECT_CODE(batch.post(), kOutOfRange);
  batch.read(1, local(0, 8), remote().slice(4090, 8));
  EXPECT_CODE(batch.post(), kOutOfRange);
  batch.send(1, LocalSlice::invalid());
  EXPECT_CODE(batch.post(), kOutOfRange);
}

TEST_F(BatchTest, MoreLocalThanRemoteBytesIsOutOfRange) {
  auto batch = pair_->start();
  batch.write(1, local(0, 9), remote(8));
  const Status posted = batch.post();
  EXPECT_CODE(posted, kOutOfRange);
  EXPECT_EQ(posted.error().asked(), 9U);
  EXPECT_EQ(posted.error().allowed(), 8U);
  const std::array<LocalSlice, 2> list{local(0, 5), local(5, 4)};
  batch.read(1, list, remote(8));
  EXPECT_CODE(batch.post(), kOutOfRange);
}

TEST_F(BatchTest, OneRequestTooManyIsToldWithTheCapacity) {
  auto storage = verbs::BatchStorage::allocate(2, 1).value();
  auto batch = pair_->start(storage);
  EXPECT_FALSE(batch.full());
  for (std::uint64_t i = 0; i < 5; ++i) batch.write(i, local(0, 8), remote()).unsignaled();
  const Status posted = batch.post();
  EXPECT_CODE(posted, kLimitExceeded);
  EXPECT_EQ(posted.error().asked(), 3U);
  EXPECT_EQ(posted.error().allowed(), 2U);
  EXPECT_EQ(posted.error().subject(), "request 2");
  EXPECT_EQ(fake_.uses("post_send"), 0);
}

TEST_F(BatchTest, OneSliceTooManyIsTold) {
  auto batch = pair_->start();
  const std::array<LocalSlice, 3> list{local(0, 1), local(1, 1), local(2, 1)};
  batch.write(1, list, remote());
  const Status posted = batch.post();
  EXPECT_CODE(posted, kLimitExceeded);
  EXPECT_EQ(posted.error().asked(), 3U);
  EXPECT_EQ(posted.error().allowed(), 2U);
}

TEST_F(BatchTest, InlineBytesAreBoundedByWhatWasGranted) {
  std::array<std::byte, 33> bytes{};
  auto batch = pair_->start();
  batch.send_inline(1, std::span{bytes}.first(32));
  batch.write_inline(2, std::span{bytes}.first(32), remote());
  ASSERT_OK(batch.post());
  EXPECT_NE(last()[1].send_flags & IBV_SEND_INLINE, 0U);
  batch.send_inline(1, bytes);
  const Status posted = batch.post();
  EXPECT_CODE(posted, kLimitExceeded);
  EXPECT_EQ(posted.error().asked(), 33U);
  EXPECT_EQ(posted.error().allowed(), 32U);
  batch.read(1, local(0, 8), remote()).inlined();
  EXPECT_CODE(batch.post(), kLimitExceeded);
}

TEST_F(BatchTest, PostFailureTellsHowManyWereTaken) {
  auto batch = pair_->start();
  for (std::uint64_t i = 0; i < 4; ++i) batch.write(i, local(0, 8), remote());
  fake_.take = 3;
  fake_.fail("post_send", 1, EINVAL);
  const Status posted = batch.post();
  EXPECT_CODE(posted, kProvider);
  EXPECT_EQ(posted.error().system_errno(), EINVAL);
  EXPECT_EQ(posted.error().asked(), 4U);
  EXPECT_EQ(posted.error().allowed(), 3U);
  EXPECT_EQ(batch.taken(), 3U);
}

TEST_F(BatchTest, FullSendQueueWouldBlock) {
  auto batch = pair_->start();
  batch.write(1, local(0, 8), remote());
  fake_.fail("post_send", 1, ENOMEM);
  EXPECT_CODE(batch.post(), kWouldBlock);
  EXPECT_EQ(batch.taken(), 0U);
}

TEST_F(BatchTest, TwoBatchesMayAlternateButNotOverlap) {
  auto first = pair_->start();
  auto second = pair_->start();
  first.write(1, local(0, 8), remote());
  ASSERT_OK(first.post());
  second.write(2, local(0, 8), remote());
  first.write(3, local(0, 8), remote());
  EXPECT_CODE(first.post(), kBusy);
  ASSERT_OK(second.post());
  EXPECT_EQ(last()[0].wr_id, 2U);
  ASSERT_EQ(last().size(), 1U);
  first.write(4, local(0, 8), remote());
  ASSERT_OK(first.post());
}

TEST_F(BatchTest, DroppedBatchPostsNothingAndFreesItsStorage) {
  {
    auto batch = pair_->start();
    batch.write(1, local(0, 8), remote());
  }
  auto batch = pair_->start();
  batch.write(2, local(0, 8), remote());
  ASSERT_OK(batch.post());
  EXPECT_EQ(last().size(), 1U);
}

TEST_F(BatchTest, EmptyBatchMayOutliveItsQueuePair) {
  auto batch = pair_->start();
  auto receives = pair_->start_receives();
  batch.write(1, local(0, 8), remote());
  ASSERT_OK(batch.post());
  receives.receive(1);
  ASSERT_OK(receives.post());
  pair_.reset();
}

TEST_F(BatchTest, RefusedBatchFreesItsStorage) {
  {
    auto batch = pair_->start();
    batch.fetch_add(1, local(0, 4), remote(), 1);  // refused, and never posted
    auto receives = pair_->start_receives();
    receives.receive(1, LocalSlice::invalid());
  }
  auto batch = pair_->start();
  batch.write(2, local(0, 8), remote());
  ASSERT_OK(batch.post());
  ASSERT_OK(pair_->post_receive(3, local(0, 8)));
}

TEST_F(BatchTest, EmptyStorageIsInvalid) {
  EXPECT_CODE(verbs::BatchStorage::allocate(0, 1), kInvalidArgument);
  EXPECT_CODE(verbs::BatchStorage::allocate(1, 0), kInvalidArgument);
}

TEST_F(BatchTest, ReceivesAreOnePost) {
  auto receives = pair_->start_receives();
  const std::array<LocalSlice, 2> list{local(0, 8), local(64, 8)};
  receives.receive(1, local(0, 64)).receive(2, list).receive(3);
  ASSERT_OK(receives.post());
  EXPECT_EQ(fake_.uses("post_recv"), 1);
  EXPECT_EQ(fake_.received_ids, (std::vector<std::uint64_t>{1, 2, 3}));
  ASSERT_OK(pair_->post_receive(9, local(0, 8)));
}

TEST_F(BatchTest, ReceiveMisuseIsRefused) {
  auto receives = pair_->start_receives();
  receives.receive(1, local(4095, 2));
  EXPECT_CODE(receives.post(), kOutOfRange);
  const std::array<LocalSlice, 3> list{};
  receives.receive(1, list);
  EXPECT_CODE(receives.post(), kLimitExceeded);
  for (std::uint64_t i = 0; i < 17; ++i) receives.receive(i);
  EXPECT_CODE(receives.post(), kLimitExceeded);
  EXPECT_EQ(fake_.uses("post_recv"), 0);
}

TEST_F(BatchTest, ReceiveFailureTellsHowManyWereTaken) {
  auto receives = pair_->start_receives();
  receives.receive(1).receive(2);
  fake_.take = 1;
  fake_.fail("post_recv", 1, ENOMEM);
  EXPECT_CODE(receives.post(), kWouldBlock);
  EXPECT_EQ(receives.taken(), 1U);
}

TEST_F(BatchTest, BusyReceiveStorageIsRefused) {
  auto first = pair_->start_receives();
  auto second = pair_->start_receives();
  first.receive(1);
  second.receive(2);
  EXPECT_CODE(second.post(), kBusy);
  ASSERT_OK(first.post());
}

}  // namespace
}  // namespace remora::test
