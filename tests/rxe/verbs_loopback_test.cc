#include "verbs_loopback.h"

namespace remora::test {
namespace {

using verbs::Completion;
using verbs::LocalSlice;
using verbs::Opcode;

TEST_F(VerbsLoopback, StateIsReadyToSend) {
  const auto state = pair_->query_state();
  ASSERT_OK(state);
  EXPECT_EQ(*state, verbs::QueuePairState::kRts);
  EXPECT_GE(pair_->capabilities().send_depth, 64U);
  EXPECT_GE(pair_->capabilities().inline_bytes, 64U);
}

TEST_F(VerbsLoopback, WriteLands) {
  rig_->fill(0, 4096, 1);
  auto batch = pair_->start();
  batch.write(7, local(0, 4096), remote(8192, 4096));
  ASSERT_OK(batch.post());
  const auto done = rig_->complete(1);
  EXPECT_TRUE(done[0].ok()) << done[0];
  EXPECT_EQ(done[0].id(), 7U);
  EXPECT_EQ(done[0].opcode(), Opcode::kWrite);
  EXPECT_EQ(done[0].qp_number(), pair_->number());
  EXPECT_TRUE(same(0, 8192, 4096));
}

TEST_F(VerbsLoopback, ReadFetches) {
  rig_->fill(8192, 16384, 2);
  auto batch = pair_->start();
  batch.read(1, local(32768, 16384), remote(8192, 16384));
  ASSERT_OK(batch.post());
  const auto done = rig_->complete(1);
  EXPECT_TRUE(done[0].ok()) << done[0];
  EXPECT_EQ(done[0].opcode(), Opcode::kRead);
  EXPECT_TRUE(same(32768, 8192, 16384));
}

TEST_F(VerbsLoopback, SendTakesAReceive) {
  rig_->fill(0, 100, 3);
  ASSERT_OK(pair_->post_receive(20, local(4096, 256)));
  auto batch = pair_->start();
  batch.send(10, local(0, 100));
  ASSERT_OK(batch.post());
  for (const Completion& done : rig_->complete(2)) {
    EXPECT_TRUE(done.ok()) << done;
    if (!done.is_receive()) continue;
    EXPECT_EQ(done.id(), 20U);
    EXPECT_EQ(done.length_bytes(), 100U);
    EXPECT_FALSE(done.immediate().has_value());
  }
  EXPECT_TRUE(same(0, 4096, 100));
}

TEST_F(VerbsLoopback, SendWithImmediateCarriesIt) {
  ASSERT_OK(pair_->post_receive(20, LocalSlice{}));
  auto batch = pair_->start();
  batch.send_with_immediate(10, LocalSlice{}, 0xdeadbeef).unsignaled();
  ASSERT_OK(batch.post());
  const auto done = rig_->complete(1);
  EXPECT_EQ(done[0].opcode(), Opcode::kReceive);
  EXPECT_EQ(done[0].immediate(), 0xdeadbeef);
  EXPECT_EQ(done[0].length_bytes(), 0U);
}

TEST_F(VerbsLoopback, WriteWithImmediateTakesAnEmptyReceive) {
  rig_->fill(0, 512, 4);
  auto receives = pair_->start_receives();
  receives.receive(30);
  ASSERT_OK(receives.post());
  auto batch = pair_->start();
  batch.write_with_immediate(10, local(0, 512), remote(2048, 512), 42).unsignaled();
  ASSERT_OK(batch.post());
  const auto done = rig_->complete(1);
  EXPECT_EQ(done[0].opcode(), Opcode::kReceiveWriteImmediate);
  EXPECT_EQ(done[0].id(), 30U);
  EXPECT_EQ(done[0].immediate(), 42U);
  EXPECT_EQ(done[0].length_bytes(), 512U);
  EXPECT_TRUE(same(0, 2048, 512));
}

TEST_F(VerbsLoopback, CompareSwapSwapsOnlyOnAMatch) {
  rig_->word(1024) = 5;
  auto batch = pair_->start();
  batch.compare_swap(1, local(0, 8), remote(1024, 8), 5, 9);
  batch.compare_swap(2, local(8, 8), remote(1024, 8), 5, 11);
  ASSERT_OK(batch.post());
  for (const Completion& done : rig_->complete(2)) {
    EXPECT_TRUE(done.ok()) << done;
    EXPECT_EQ(done.opcode(), Opcode::kCompareSwap);
  }
  EXPECT_EQ(rig_->word(0), 5U);  // matched
  EXPECT_EQ(rig_->word(8), 9U);  // did not
  EXPECT_EQ(rig_->word(1024), 9U);
}

TEST_F(VerbsLoopback, FetchAddReturnsWhatWasThere) {
  rig_->word(1024) = ~std::uint64_t{0};
  auto batch = pair_->start();
  batch.fetch_add(1, local(0, 8), remote(1024, 8), 3);
  ASSERT_OK(batch.post());
  const auto done = rig_->complete(1);
  EXPECT_TRUE(done[0].ok()) << done[0];
  EXPECT_EQ(done[0].opcode(), Opcode::kFetchAdd);
  EXPECT_EQ(rig_->word(0), ~std::uint64_t{0});
  EXPECT_EQ(rig_->word(1024), 2U);
}

TEST_F(VerbsLoopback, InlineBytesNeedNoRegistration) {
  std::array<std::byte, 48> stack{};
  stack.fill(std::byte{0x5a});
  ASSERT_OK(pair_->post_receive(20, local(512, 64)));
  auto batch = pair_->start();
  batch.write_inline(1, stack, remote(256, 48));
  batch.send_inline(2, stack);
  ASSERT_OK(batch.post());
  stack.fill(std::byte{0});  // copied already
  for (const Completion& done : rig_->complete(3)) EXPECT_TRUE(done.ok()) << done;
  EXPECT_EQ(*rig_->at(256), std::byte{0x5a});
  EXPECT_EQ(*rig_->at(256 + 47), std::byte{0x5a});
  EXPECT_EQ(*rig_->at(512 + 47), std::byte{0x5a});
}

TEST_F(VerbsLoopback, InlineListsAreGathered) {
  rig_->fill(0, 64, 5);
  const std::array<LocalSlice, 2> pieces{local(0, 20), local(40, 20)};
  auto batch = pair_->start();
  batch.write(1, pieces, remote(1024, 40)).inlined();
  ASSERT_OK(batch.post());
  EXPECT_TRUE(rig_->complete(1)[0].ok());
  EXPECT_TRUE(same(0, 1024, 20));
  EXPECT_TRUE(same(40, 1044, 20));
}

TEST_F(VerbsLoopback, ListsGatherAndScatter) {
  rig_->fill(0, 3000, 6);
  const std::array<LocalSlice, 3> from{local(0, 1000), local(2000, 1), local(1000, 999)};
  const std::array<LocalSlice, 2> to{local(30000, 1500), local(20000, 500)};
  auto batch = pair_->start();
  batch.write(1, from, remote(8192, 2000)).unsignaled();
  batch.read(2, to, remote(8192, 2000)).fenced();
  ASSERT_OK(batch.post());
  const auto done = rig_->complete(1);
  EXPECT_EQ(done[0].id(), 2U);
  EXPECT_TRUE(done[0].ok()) << done[0];
  EXPECT_TRUE(same(8192, 0, 1000));
  EXPECT_TRUE(same(9192, 2000, 1));
  EXPECT_TRUE(same(9193, 1000, 999));
  EXPECT_TRUE(same(30000, 8192, 1500));
  EXPECT_TRUE(same(20000, 9692, 500));
}

TEST_F(VerbsLoopback, MessageScattersOverAReceiveList) {
  rig_->fill(0, 300, 7);
  const std::array<LocalSlice, 2> pieces{local(4096, 100), local(8192, 300)};
  auto receives = pair_->start_receives();
  receives.receive(1, pieces);
  ASSERT_OK(receives.post());
  auto batch = pair_->start();
  batch.send(2, local(0, 300)).unsignaled();
  ASSERT_OK(batch.post());
  EXPECT_EQ(rig_->complete(1)[0].length_bytes(), 300U);
  EXPECT_TRUE(same(4096, 0, 100));
  EXPECT_TRUE(same(8192, 100, 200));
}

TEST_F(VerbsLoopback, UnsignaledChainCompletesOnce) {
  constexpr std::size_t kLength = std::size_t{64} * 32;
  rig_->fill(0, kLength, 8);
  for (int round = 0; round < 8; ++round) {  // the send queue is reused 4 times over
    auto batch = pair_->start();
    for (std::uint64_t i = 0; i < 32; ++i)
      batch.write(i, local(i * 64, 64), remote(32768 + i * 64, 64)).signaled(i == 31);
    ASSERT_EQ(batch.size(), 32U);
    ASSERT_OK(batch.post());
    EXPECT_EQ(batch.taken(), 32U);
    const auto done = rig_->complete(1);
    EXPECT_EQ(done[0].id(), 31U);
    EXPECT_TRUE(done[0].ok()) << done[0];
  }
  EXPECT_TRUE(rig_->quiet());
  EXPECT_TRUE(same(0, 32768, kLength));
}

TEST_F(VerbsLoopback, OneBatchOfEveryOperation) {
  rig_->fill(0, 1024, 11);
  rig_->word(20480) = 40;
  rig_->word(20488) = 50;
  auto receives = pair_->start_receives();
  receives.receive(101, local(4096, 256)).receive(102, local(4608, 256)).receive(103);
  ASSERT_OK(receives.post());
  auto batch = pair_->start();
  batch.send(1, local(0, 100));
  batch.send_with_immediate(2, local(128, 100), 22);
  batch.write(3, local(256, 200), remote(8192, 200));
  batch.write_with_immediate(4, local(512, 200), remote(12288, 200), 44);
  batch.read(5, local(16384, 200), remote(768, 200));
  batch.compare_swap(6, local(24576, 8), remote(20480, 8), 40, 41);
  batch.fetch_add(7, local(24584, 8), remote(20488, 8), 5);
  ASSERT_OK(batch.post());
  EXPECT_EQ(batch.taken(), 7U);
  std::vector<Completion> sent;
  std::vector<Completion> received;
  for (const Completion& done : rig_->complete(10)) {
    ASSERT_TRUE(done.ok()) << done;
    (done.is_receive() ? received : sent).push_back(done);
  }
  const std::array expected{Opcode::kSend, Opcode::kSend,        Opcode::kWrite,   Opcode::kWrite,
                            Opcode::kRead, Opcode::kCompareSwap, Opcode::kFetchAdd};
  ASSERT_EQ(sent.size(), expected.size());
  for (std::size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(sent[i].id(), i + 1);
    EXPECT_EQ(sent[i].opcode(), expected[i]) << sent[i];
  }
  ASSERT_EQ(received.size(), 3U);
  EXPECT_EQ(received[0].id(), 101U);
  EXPECT_FALSE(received[0].immediate().has_value());
  EXPECT_EQ(received[1].id(), 102U);
  EXPECT_EQ(received[1].immediate(), 22U);
  EXPECT_EQ(received[2].id(), 103U);
  EXPECT_EQ(received[2].opcode(), Opcode::kReceiveWriteImmediate);
  EXPECT_EQ(received[2].immediate(), 44U);
  EXPECT_TRUE(same(0, 4096, 100));
  EXPECT_TRUE(same(128, 4608, 100));
  EXPECT_TRUE(same(256, 8192, 200));
  EXPECT_TRUE(same(512, 12288, 200));
  EXPECT_TRUE(same(768, 16384, 200));
  EXPECT_EQ(rig_->word(24576), 40U);
  EXPECT_EQ(rig_->word(20480), 41U);
  EXPECT_EQ(rig_->word(24584), 50U);
  EXPECT_EQ(rig_->word(20488), 55U);
}

TEST_F(VerbsLoopback, FenceWaitsForTheAtomicBefore) {
  rig_->word(1024) = 100;
  auto batch = pair_->start();
  // The write sends what the fetch-add brings: only the fence makes that well defined.
  batch.fetch_add(1, local(0, 8), remote(1024, 8), 1).unsignaled();
  batch.write(2, local(0, 8), remote(2048, 8)).fenced();
  ASSERT_OK(batch.post());
  EXPECT_TRUE(rig_->complete(1)[0].ok());
  EXPECT_EQ(rig_->word(2048), 100U);
  EXPECT_EQ(rig_->word(1024), 101U);
}

TEST_F(VerbsLoopback, OnlySolicitedMessagesWake) {
  auto receives = pair_->start_receives();
  receives.receive(1).receive(2);
  ASSERT_OK(receives.post());
  ASSERT_OK(rig_->queue.arm(verbs::Notify::kSolicited));
  auto batch = pair_->start();
  batch.send(10, LocalSlice{}).unsignaled();
  ASSERT_OK(batch.post());
  std::array<Completion, 4> storage;
  const auto give_up = soon();
  std::size_t polled = 0;
  while (polled == 0 && std::chrono::steady_clock::now() < give_up)
    polled = rig_->queue.poll(storage)->size();
  ASSERT_EQ(polled, 1U);
  EXPECT_EQ(rig_->queue.take_events().value(), 0U);
  batch.send(11, LocalSlice{}).unsignaled().solicited();
  ASSERT_OK(batch.post());
  for (polled = 0; polled == 0 && std::chrono::steady_clock::now() < give_up;)
    polled = rig_->queue.poll(storage)->size();
  ASSERT_EQ(polled, 1U);
  std::uint32_t events = 0;
  while (events == 0 && std::chrono::steady_clock::now() < give_up)
    events = rig_->queue.take_events().value();
  EXPECT_EQ(events, 1U);
}

TEST_F(VerbsLoopback, SharedChannelTellsWhichQueueFired) {
  auto channel = rig_->device.create_completion_channel();
  ASSERT_OK(channel);
  int first_tag = 0;
  int second_tag = 0;
  auto first = rig_->device.create_completion_queue({.channel = *channel, .context = &first_tag});
  auto second = rig_->device.create_completion_queue({.channel = *channel, .context = &second_tag});
  ASSERT_OK(first);
  ASSERT_OK(second);
  connect(verbs::QueuePairBuilder<verbs::Rc>{rig_->domain, *first, *second}.timeout(18));
  ASSERT_OK(first->arm());
  ASSERT_OK(second->arm());
  ASSERT_OK(pair_->post_receive(1, LocalSlice{}));
  auto batch = pair_->start();
  batch.send(2, LocalSlice{}).unsignaled();  // completes on the second queue only
  ASSERT_OK(batch.post());
  const auto give_up = soon();
  std::optional<verbs::CompletionQueueEvent> event;
  while (!event && std::chrono::steady_clock::now() < give_up) event = *channel->next_event();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->context, &second_tag);
  EXPECT_EQ(event->queue, second->raw());
}

TEST_F(VerbsLoopback, RawChainGoesThrough) {
  rig_->fill(0, 64, 9);
  ibv_sge element = local(0, 64).raw();
  ibv_send_wr wr{};
  wr.wr_id = 77;
  wr.sg_list = &element;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = remote(512, 64).address();
  wr.wr.rdma.rkey = rig_->memory->rkey();
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(pair_->post_send(&wr, &bad), 0);
  EXPECT_EQ(rig_->complete(1)[0].id(), 77U);
  EXPECT_TRUE(same(0, 512, 64));
}

TEST_F(VerbsLoopback, MegabyteGoesThroughInBothDirections) {
  constexpr std::size_t kLength = 1 << 20;
  auto big = Rig::create(rig_->device, 2 * kLength);
  ASSERT_OK(big);
  rig_.emplace(std::move(*big));
  connect(rig_->builder());
  rig_->fill(0, kLength, 10);
  auto batch = pair_->start();
  batch.write(1, local(0, kLength), remote(kLength, kLength));
  ASSERT_OK(batch.post());
  EXPECT_TRUE(rig_->complete(1)[0].ok());
  EXPECT_TRUE(same(0, kLength, kLength));
  std::memset(rig_->at(0), 0, kLength);
  batch.read(2, local(0, kLength), remote(kLength, kLength));
  ASSERT_OK(batch.post());
  EXPECT_TRUE(rig_->complete(1)[0].ok());
  EXPECT_TRUE(same(0, kLength, kLength));
}

}  // namespace
}  // namespace remora::test
