#include "verbs_loopback.h"

namespace remora::test {
namespace {

using verbs::Completion;
using verbs::LocalSlice;
using verbs::RemoteSlice;

TEST_F(VerbsLoopback, WrongKeyIsRefusedAndTheRestFlushes) {
  rig_->fill(0, 64, 1);
  ASSERT_OK(pair_->post_receive(50, local(4096, 64)));
  const RemoteSlice wrong{rig_->memory->address() + 2048, 64, rig_->memory->rkey() ^ 0x55};
  auto batch = pair_->start();
  batch.write(1, local(0, 64), remote(1024, 64)).unsignaled();
  batch.write(2, local(0, 64), wrong);
  batch.write(3, local(0, 64), remote(3072, 64)).unsignaled();
  batch.write(4, local(0, 64), remote(3200, 64));
  ASSERT_OK(batch.post());
  const auto done = rig_->complete(4);  // unsignaled ones flush too, and so does the receive
  EXPECT_EQ(done[0].id(), 2U) << done[0];
  EXPECT_EQ(done[0].status(), CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(done[0].error().code(), Code::kAccessRefused);
  EXPECT_EQ(done[0].error().completion_status(), CompletionStatus::kRemoteAccessError);
  bool receive_flushed = false;
  for (const Completion& other : std::span{done}.subspan(1)) {
    EXPECT_TRUE(other.flushed()) << other;
    EXPECT_EQ(other.qp_number(), pair_->number());
    receive_flushed |= other.id() == 50;
  }
  EXPECT_TRUE(receive_flushed);
  EXPECT_TRUE(same(0, 1024, 64)) << "the one before it had landed";
  const auto state = pair_->query_state();
  ASSERT_OK(state);
  EXPECT_EQ(*state, verbs::QueuePairState::kErr);
}

TEST_F(VerbsLoopback, ReadBeyondTheRegistrationIsRefused) {
  const RemoteSlice beyond{rig_->memory->address() + rig_->bytes.size() - 8, 64,
                           rig_->memory->rkey()};
  auto batch = pair_->start();
  batch.read(1, local(0, 64), beyond);
  ASSERT_OK(batch.post());
  EXPECT_EQ(rig_->complete(1)[0].status(), CompletionStatus::kRemoteAccessError);
}

TEST_F(VerbsLoopback, RegistrationWithoutRemoteWriteRefusesIt) {
  std::vector<std::byte> bytes(4096);
  const auto readable = rig_->domain.register_bytes(bytes, verbs::Access::kRemoteRead);
  ASSERT_OK(readable);
  auto batch = pair_->start();
  batch.read(1, local(0, 64), readable->remote(0, 64));
  ASSERT_OK(batch.post());
  EXPECT_TRUE(rig_->complete(1)[0].ok());
  batch.write(2, local(0, 64), readable->remote(0, 64));
  ASSERT_OK(batch.post());
  EXPECT_EQ(rig_->complete(1)[0].status(), CompletionStatus::kRemoteAccessError);
}

TEST_F(VerbsLoopback, QueuePairWithoutAtomicRightRefusesThem) {
  connect(rig_->builder().access(verbs::Access::kLocalWrite | verbs::Access::kRemoteWrite));
  auto batch = pair_->start();
  batch.fetch_add(1, local(0, 8), remote(1024, 8), 1);
  ASSERT_OK(batch.post());
  const auto done = rig_->complete(1);
  EXPECT_EQ(done[0].error().code(), Code::kAccessRefused) << done[0];
}

TEST_F(VerbsLoopback, WrongLocalKeyIsALocalError) {
  auto batch = pair_->start();
  const auto wrong = LocalSlice::unchecked(rig_->memory->address(), 64, 0x123456);
  batch.write(1, wrong, remote(1024, 64));
  const Status posted = batch.post();
  if (!posted) {  // a provider may notice at once
    EXPECT_EQ(posted.error().operation(), "ibv_post_send");
    return;
  }
  const auto done = rig_->complete(1);
  // rxe calls it an operation error of the queue pair, the specification a protection error.
  EXPECT_TRUE(done[0].status() == CompletionStatus::kLocalProtectionError ||
              done[0].status() == CompletionStatus::kLocalQpOperationError)
      << done[0];
}

TEST_F(VerbsLoopback, MessageWithoutAReceiveExhaustsItsRetries) {
  connect(rig_->builder().rnr_retry_count(2).min_rnr_timer(1));
  auto batch = pair_->start();
  batch.send(1, local(0, 64));
  ASSERT_OK(batch.post());
  EXPECT_EQ(rig_->complete(1)[0].status(), CompletionStatus::kRnrRetryExceeded);
}

TEST_F(VerbsLoopback, FullSendQueueTellsHowManyWereTaken) {
  // rxe rounds its ring up to a power of two and fills all of it.
  const std::uint32_t length = 4 * pair_->capabilities().send_depth;
  auto storage = verbs::BatchStorage::allocate(length, 1);
  ASSERT_OK(storage);
  rig_->fill(0, 8, 3);
  auto batch = pair_->start(*storage);
  for (std::uint32_t i = 0; i < length; ++i)
    batch.write(i, local(0, 8), remote(1024, 8)).signaled(false);
  const Status posted = batch.post();
  ASSERT_FALSE(posted.ok()) << "the queue took more than it has room for";
  EXPECT_EQ(posted.error().code(), Code::kWouldBlock) << posted.error();
  EXPECT_EQ(posted.error().asked(), length);
  EXPECT_EQ(posted.error().allowed(), batch.taken());
  EXPECT_GE(batch.taken(), 64U);
  EXPECT_LT(batch.taken(), length);
  EXPECT_TRUE(rig_->quiet());  // those taken run, unsignaled
}

TEST_F(VerbsLoopback, MisuseIsRefusedBeforeAnythingIsPosted) {
  auto batch = pair_->start();
  batch.write(1, local(0, 8), remote(1024, 8));
  batch.fetch_add(2, local(0, 8), remote(1028, 8), 1);
  const Status misaligned = batch.post();
  ASSERT_FALSE(misaligned.ok());
  EXPECT_EQ(misaligned.error().code(), Code::kMisaligned);
  EXPECT_EQ(misaligned.error().subject(), "request 1");
  batch.write(3, local(rig_->bytes.size() - 4, 8), remote(0, 8));
  const Status outside = batch.post();
  ASSERT_FALSE(outside.ok());
  EXPECT_EQ(outside.error().code(), Code::kOutOfRange);
  EXPECT_TRUE(rig_->quiet());
  batch.write(4, local(0, 8), remote(1024, 8));  // and it still works
  ASSERT_OK(batch.post());
  EXPECT_EQ(rig_->complete(1)[0].id(), 4U);
}

TEST_F(VerbsLoopback, MoreInlineThanWasGrantedIsRefusedByPost) {
  const std::uint32_t granted = pair_->capabilities().inline_bytes;
  const std::vector<std::byte> bytes(std::size_t{granted} + 1, std::byte{7});
  const std::span<const std::byte> all{bytes};
  ASSERT_OK(pair_->post_receive(1, local(4096, bytes.size())));
  auto batch = pair_->start();
  batch.write_inline(2, all.first(granted), remote(8192, granted));
  batch.send_inline(3, all);
  const Status refused = batch.post();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Code::kLimitExceeded) << refused.error();
  EXPECT_EQ(refused.error().subject(), "request 1: inline bytes");
  EXPECT_EQ(refused.error().asked(), granted + 1);
  EXPECT_EQ(refused.error().allowed(), granted);
  EXPECT_TRUE(rig_->quiet());  // nor was the other one posted
  batch.send_inline(4, all.first(granted));
  ASSERT_OK(batch.post());
  for (const Completion& done : rig_->complete(2)) EXPECT_TRUE(done.ok()) << done;
  EXPECT_EQ(std::memcmp(rig_->at(4096), bytes.data(), granted), 0);
}

TEST_F(VerbsLoopback, BreakingItFlushesWhatIsPosted) {
  ASSERT_OK(pair_->post_receive(1, local(0, 64)));
  ASSERT_OK(pair_->post_receive(2, local(64, 64)));
  ASSERT_OK(pair_->to_error());
  for (const Completion& done : rig_->complete(2)) {
    EXPECT_TRUE(done.flushed()) << done;
    EXPECT_EQ(done.error().completion_status(), CompletionStatus::kFlushed);
  }
}

TEST_F(VerbsLoopback, DestroyingItWithWorkPostedLeavesNothing) {
  ASSERT_OK(pair_->post_receive(1, local(0, 64)));
  auto batch = pair_->start();
  for (std::uint64_t i = 0; i < 32; ++i) batch.write(i, local(0, 4096), remote(8192, 4096));
  ASSERT_OK(batch.post());
  pair_.reset();
}

TEST_F(VerbsLoopback, MoveAssignmentDestroysTheOldPairFirst) {
  auto other = Rig::create(rig_->device);
  ASSERT_OK(other);
  auto prepared = other->builder().build();
  ASSERT_OK(prepared);
  const auto endpoint = prepared->endpoint();
  auto second = std::move(*prepared).connect(endpoint);
  ASSERT_OK(second);
  rig_->memory.reset();
  rig_->queue = {};  // the old pair alone keeps its queue and domain now
  rig_->domain = {};
  *pair_ = std::move(*second);
  EXPECT_TRUE(pair_->query_state().ok());
}

}  // namespace
}  // namespace remora::test
