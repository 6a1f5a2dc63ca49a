#include "fake_verbs.h"

namespace remora::test {
namespace {

using std::chrono::milliseconds;
using verbs::Completion;

class CompletionQueueTest : public FakeTest {};

TEST_F(CompletionQueueTest, BadOptionsAreInvalid) {
  const auto device = open();
  EXPECT_CODE(device.create_completion_queue({.depth = 0}), kInvalidArgument);
  EXPECT_CODE(device.create_completion_queue({.depth = 8, .vector = 2}), kInvalidArgument);
  EXPECT_CODE(device.create_completion_queue({.depth = 8, .vector = -1}), kInvalidArgument);
  const auto channel = device.create_completion_channel().value();
  EXPECT_CODE(device.create_completion_queue({.depth = 8, .events = true, .channel = channel}),
              kInvalidArgument);
  EXPECT_CODE(open().create_completion_queue({.depth = 8, .channel = channel}), kInvalidArgument);
}

TEST_F(CompletionQueueTest, DepthBeyondTheDeviceIsTold) {
  const auto queue = open().create_completion_queue({.depth = 1025});
  EXPECT_CODE(queue, kLimitExceeded);
  EXPECT_EQ(queue.error().allowed(), 1024U);
}

TEST_F(CompletionQueueTest, DepthAndVectorReachTheDevice) {
  const auto device = open();
  for (const int vector : {0, 1}) {
    ASSERT_OK(device.create_completion_queue({.depth = 8, .vector = vector}));
    EXPECT_EQ(fake_.queues.back().depth, 8U);
    EXPECT_EQ(fake_.queues.back().vector, static_cast<std::uint32_t>(vector));
  }
}

TEST_F(CompletionQueueTest, FailuresOfItsPartsAreKept) {
  const auto device = open();
  fake_.fail("create_cq", 1, ENOMEM);
  EXPECT_CODE(device.create_completion_queue({.depth = 8, .events = true}), kOutOfMemory);
  fake_.fail("create_comp_channel", 1, EMFILE);
  EXPECT_CODE(device.create_completion_queue({.depth = 8, .events = true}), kProvider);
}

TEST_F(CompletionQueueTest, PollGivesTheFrontOfTheStorage) {
  const auto queue = open().create_completion_queue({.depth = 8}).value();
  ibv_wc wc{};
  wc.wr_id = 5;
  wc.opcode = IBV_WC_RECV;
  wc.wc_flags = IBV_WC_WITH_IMM;
  wc.imm_data = htonl(99);
  wc.byte_len = 12;
  fake_.completions = {wc};
  std::array<Completion, 4> storage;
  const auto some = queue.poll(storage);
  ASSERT_OK(some);
  ASSERT_EQ(some->size(), 1U);
  EXPECT_EQ(some->data(), storage.data());
  EXPECT_EQ((*some)[0].id(), 5U);
  EXPECT_EQ((*some)[0].immediate(), 99U);
  EXPECT_EQ((*some)[0].length_bytes(), 12U);
  EXPECT_TRUE((*some)[0].is_receive());
  EXPECT_TRUE(queue.poll(storage)->empty());
}

TEST_F(CompletionQueueTest, PollFailureIsKept) {
  const auto queue = open().create_completion_queue({.depth = 8}).value();
  std::array<Completion, 1> storage;
  fake_.fail("poll_cq", 1, EIO);
  EXPECT_CODE(queue.poll(storage), kProvider);
}

TEST_F(CompletionQueueTest, InvalidatedKeyIsThereOnlyWhereTheMessageTookOne) {
  Completion completion;
  completion.raw().opcode = IBV_WC_RECV;
  completion.raw().invalidated_rkey = 0x1234;  // the immediate lies in the same place
  EXPECT_FALSE(completion.invalidated_rkey().has_value());
  completion.raw().wc_flags = IBV_WC_WITH_INV;
  EXPECT_EQ(completion.invalidated_rkey(), 0x1234U);
  EXPECT_FALSE(completion.immediate().has_value());
  completion.raw().wc_flags = IBV_WC_WITH_IMM;
  EXPECT_FALSE(completion.invalidated_rkey().has_value());
}

TEST_F(CompletionQueueTest, FailedCompletionBecomesAnError) {
  Completion completion;
  completion.raw().status = IBV_WC_REM_ACCESS_ERR;
  completion.raw().vendor_err = 0x88;
  EXPECT_EQ(completion.error().code(), Code::kAccessRefused);
  EXPECT_EQ(completion.error().completion_status(), CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(completion.error().vendor_error(), 0x88U);
  completion.raw().status = IBV_WC_WR_FLUSH_ERR;
  EXPECT_TRUE(completion.flushed());
  EXPECT_EQ(completion.error().code(), Code::kProvider);
  completion.raw().status = IBV_WC_TM_RNDV_INCOMPLETE;
  EXPECT_EQ(completion.status(), CompletionStatus::kGeneral);
}

TEST_F(CompletionQueueTest, WithoutAChannelThereIsNothingToWaitOn) {
  const auto queue = open().create_completion_queue({.depth = 8}).value();
  std::array<Completion, 1> storage;
  EXPECT_EQ(queue.event_fd(), -1);
  EXPECT_CODE(queue.arm(), kInvalidArgument);
  EXPECT_CODE(queue.take_events(), kInvalidArgument);
  EXPECT_CODE(queue.wait(storage, verbs::deadline_in(milliseconds{1})), kInvalidArgument);
}

TEST_F(CompletionQueueTest, WaitEndsAtTheDeadline) {
  const auto queue = open().create_completion_queue({.depth = 8, .events = true}).value();
  std::array<Completion, 1> storage;
  EXPECT_CODE(queue.wait(storage, verbs::deadline_in(milliseconds{20})), kTimedOut);
  EXPECT_CODE(queue.wait({}, verbs::deadline_in(milliseconds{1})), kInvalidArgument);
}

TEST_F(CompletionQueueTest, WaitSeesWhatCameBeforeArming) {
  const auto queue = open().create_completion_queue({.depth = 8, .events = true}).value();
  std::array<Completion, 1> storage;
  fake_.completions.emplace_back();
  EXPECT_EQ(queue.wait(storage, verbs::deadline_in(milliseconds{0}))->size(), 1U);
}

TEST_F(CompletionQueueTest, WaitFailuresAreKept) {
  const auto queue = open().create_completion_queue({.depth = 8, .events = true}).value();
  std::array<Completion, 1> storage;
  fake_.fail("req_notify_cq", 1, EIO);
  EXPECT_CODE(queue.wait(storage, verbs::deadline_in(milliseconds{1})), kProvider);
  fake_.raise(queue.raw());
  fake_.fail("get_cq_event", 1, EIO);
  EXPECT_CODE(queue.wait(storage, verbs::deadline_in(milliseconds{1})), kProvider);
}

TEST_F(CompletionQueueTest, EventsAreAcknowledgedInBatchesAndBeforeDestruction) {
  {
    const auto queue = open().create_completion_queue({.depth = 8, .events = true}).value();
    for (int i = 0; i < 100; ++i) fake_.raise(queue.raw());
    EXPECT_EQ(queue.take_events().value(), 100U);
    EXPECT_EQ(fake_.uses("ack_cq_events"), 1);
    EXPECT_EQ(queue.take_events().value(), 0U);
  }
  EXPECT_EQ(fake_.uses("ack_cq_events"), 2);  // the fake fails where one is missing
}

TEST_F(CompletionQueueTest, SharedChannelTellsTheContext) {
  const auto device = open();
  const auto channel = device.create_completion_channel().value();
  int tag = 0;
  const auto queue =
      device.create_completion_queue({.depth = 8, .channel = channel, .context = &tag}).value();
  EXPECT_FALSE(channel.next_event()->has_value());
  fake_.raise(queue.raw());
  const auto event = channel.next_event();
  ASSERT_OK(event);
  ASSERT_TRUE(event->has_value());
  EXPECT_EQ((*event)->context, &tag);
  EXPECT_EQ((*event)->queue, queue.raw());
  std::array<Completion, 1> storage;
  EXPECT_CODE(queue.wait(storage, verbs::deadline_in(milliseconds{1})), kInvalidArgument);
}

}  // namespace
}  // namespace remora::test
