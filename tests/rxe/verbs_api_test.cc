// Shared channels, lists and inline bytes of datagrams, and immediates of unregistered bytes.
#include <set>

#include "verbs_loopback.h"

namespace remora::test {
namespace {

using std::chrono::milliseconds;
using verbs::Completion;
using verbs::LocalSlice;
using verbs::Opcode;

class VerbsApi : public VerbsLoopback {
 protected:
  const std::string one_ = "gathered ";
  const std::string two_ = "inline";
  const std::array<std::span<const std::byte>, 2> pieces_{std::as_bytes(std::span{one_}),
                                                          std::as_bytes(std::span{two_})};
  [[nodiscard]] bool holds(std::size_t offset, std::string_view text) {
    return std::memcmp(rig_->at(offset), text.data(), text.size()) == 0;
  }
};

TEST_F(VerbsApi, SharedChannelTellsWhichQueueFired) {
  const auto channel = rig_->device.create_completion_channel();
  ASSERT_OK(channel);
  int sends_tag = 0;
  int receives_tag = 0;
  const auto sends =
      rig_->device.create_completion_queue({.channel = *channel, .context = &sends_tag});
  const auto receives =
      rig_->device.create_completion_queue({.channel = *channel, .context = &receives_tag});
  ASSERT_OK(sends);
  ASSERT_OK(receives);
  connect(verbs::QueuePairBuilder<verbs::Rc>{rig_->domain, *sends, *receives}.timeout(18));
  ASSERT_OK(sends->arm());
  ASSERT_OK(receives->arm());
  const auto late = channel->wait_event(verbs::deadline_in(milliseconds{30}));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code(), Code::kTimedOut) << late.error();

  ASSERT_OK(pair_->post_receive(1, local(4096, 64)));
  auto batch = pair_->start();
  batch.send(2, local(0, 64));
  ASSERT_OK(batch.post());
  std::set<const void*> fired;
  for (int i = 0; i < 2; ++i) {
    const auto event = channel->wait_event(soon());
    ASSERT_OK(event);
    fired.insert(event->context);
    const auto& queue = event->context == &sends_tag ? *sends : *receives;
    EXPECT_EQ(event->queue, queue.raw());
    std::array<Completion, 4> storage;
    const auto some = queue.poll(storage);
    ASSERT_OK(some);
    ASSERT_EQ(some->size(), 1U);
    EXPECT_TRUE((*some)[0].ok()) << (*some)[0];
  }
  EXPECT_EQ(fired, (std::set<const void*>{&sends_tag, &receives_tag}));
  pair_.reset();
}

TEST_F(VerbsApi, EveryCompletionVectorTakesAQueue) {
  const std::uint32_t count = rig_->device.completion_vector_count();
  ASSERT_GE(count, 1U);
  const auto last = static_cast<int>(count) - 1;
  ASSERT_OK(rig_->device.create_completion_queue({.events = true, .vector = last}));
  const auto beyond = rig_->device.create_completion_queue({.events = true, .vector = last + 1});
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(beyond.error().allowed(), count - 1);
}

TEST_F(VerbsApi, ConnectedPairsSendUnregisteredBytesWithAnImmediate) {
  ASSERT_OK(pair_->post_receive(1, local(4096, 64)));
  ASSERT_OK(pair_->post_receive(2, local(4200, 64)));
  ASSERT_OK(pair_->post_receive(3, LocalSlice{}));
  ASSERT_OK(pair_->post_receive(4, LocalSlice{}));
  auto batch = pair_->start();
  batch.send_inline_with_immediate(10, pieces_[0], 5).unsignaled();
  batch.send_inline_with_immediate(11, pieces_, 6).unsignaled();
  batch.write_inline_with_immediate(12, pieces_[1], remote(8192, 6), 7).unsignaled();
  batch.write_inline_with_immediate(13, pieces_, remote(8300, 15), 8).unsignaled();
  ASSERT_OK(batch.post());
  const auto done = rig_->complete(4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(done[i].ok()) << done[i];
    EXPECT_EQ(done[i].immediate(), 5U + i);
    EXPECT_EQ(done[i].opcode(), i < 2 ? Opcode::kReceive : Opcode::kReceiveWriteImmediate);
  }
  EXPECT_TRUE(holds(4096, "gathered "));
  EXPECT_TRUE(holds(4200, "gathered inline"));
  EXPECT_TRUE(holds(8192, "inline"));
  EXPECT_TRUE(holds(8300, "gathered inline"));
}

TEST_F(VerbsApi, UnreliableConnectionSendsUnregisteredBytesWithAnImmediate) {
  auto prepared = verbs::QueuePairBuilder<verbs::Uc>{rig_->domain, rig_->queue, rig_->queue}
                      .send_sge(2)
                      .inline_bytes(64)
                      .build();
  ASSERT_OK(prepared);
  const auto self = prepared->endpoint();
  auto pair = std::move(*prepared).connect(self);
  ASSERT_OK(pair);
  ASSERT_OK(pair->post_receive(1, local(4096, 64)));
  ASSERT_OK(pair->post_receive(2, LocalSlice{}));
  auto batch = pair->start();
  batch.send_inline_with_immediate(3, pieces_, 5).unsignaled();
  batch.write_inline_with_immediate(4, pieces_[1], remote(8192, 6), 6).unsignaled();
  ASSERT_OK(batch.post());
  const auto done = rig_->complete(2);
  EXPECT_EQ(done[0].immediate(), 5U);
  EXPECT_EQ(done[0].length_bytes(), 15U);
  EXPECT_EQ(done[1].immediate(), 6U);
  EXPECT_TRUE(holds(4096, "gathered inline"));
  EXPECT_TRUE(holds(8192, "inline"));
}

// Both kinds of queue tell which window's key the peer took back.
TEST_F(VerbsApi, InvalidationByThePeerTellsTheKey) {
  for (const auto fields : {verbs::CompletionFields::kNone, verbs::CompletionFields::kStandard}) {
    const auto receives = rig_->device.create_completion_queue({.fields = fields});
    if (!receives && receives.error().code() == Code::kUnsupported)
      GTEST_SKIP() << receives.error();
    ASSERT_OK(receives);
    connect(verbs::QueuePairBuilder<verbs::Rc>{rig_->domain, rig_->queue, *receives}.timeout(18));
    const auto region = rig_->domain.register_bytes(
        rig_->bytes, verbs::Access::kLocalWrite | verbs::Access::kWindowBind);
    ASSERT_OK(region);
    auto window = pair_->allocate_window();
    if (!window) GTEST_SKIP() << window.error();
    ASSERT_OK(pair_->post_receive(1, local(4096, 64)));
    auto batch = pair_->start();
    batch.bind_window(2, *window, *region, 0, 4096, verbs::Access::kRemoteRead);
    ASSERT_OK(batch.post());
    ASSERT_TRUE(rig_->complete(1)[0].ok());
    batch.send_with_invalidate(3, local(0, 8), window->rkey());
    ASSERT_OK(batch.post());
    const auto sent = rig_->complete(1)[0];
    ASSERT_TRUE(sent.ok()) << sent;
    std::optional<std::uint32_t> taken_back;
    std::uint32_t written = 0;  // where the driver puts the key
    if (fields == verbs::CompletionFields::kNone) {
      std::array<Completion, 1> storage;
      const auto some = receives->poll(storage);
      ASSERT_OK(some);
      ASSERT_EQ(some->size(), 1U);
      taken_back = (*some)[0].invalidated_rkey();
      written = (*some)[0].raw().invalidated_rkey;
    } else {
      auto poll = receives->start_poll();
      ASSERT_OK(poll);
      for (const verbs::ExtendedCompletion& done : *poll) {
        taken_back = done.invalidated_rkey();
        written = ::ibv_wc_read_invalidated_rkey(done.raw());
        EXPECT_FALSE(done.immediate().has_value());
      }
    }
    EXPECT_EQ(written, window->rkey());
    // rxe of Linux 6.1 sets the kernel's flag, which is another one in user space.
    if (taken_back || !rig_->device.is_software()) {
      EXPECT_EQ(taken_back, window->rkey());
    }
    pair_.reset();
  }
}

TEST_F(VerbsApi, DatagramsAreGatheredFromListsAndPieces) {
  // The receives complete in a queue with fields.
  const auto receives =
      rig_->device.create_completion_queue({.fields = verbs::CompletionFields::kStandard});
  if (!receives && receives.error().code() == Code::kUnsupported) GTEST_SKIP() << receives.error();
  ASSERT_OK(receives);
  auto prepared = verbs::QueuePairBuilder<verbs::Ud>{rig_->domain, rig_->queue, *receives}
                      .send_sge(2)
                      .inline_bytes(64)
                      .build();
  ASSERT_OK(prepared);
  const auto peer =
      verbs::DatagramPeer::create(rig_->domain, prepared->endpoint(), prepared->source());
  ASSERT_OK(peer);
  auto pair = std::move(*prepared).activate();
  ASSERT_OK(pair);
  rig_->fill(0, 64, 3);
  const std::array<LocalSlice, 2> slices{local(0, 16), local(32, 16)};
  auto batch = pair->start();
  constexpr std::size_t kSlot = 256;
  for (std::uint64_t i = 0; i < 5; ++i)
    ASSERT_OK(pair->post_receive(i, local(4096 + i * kSlot, kSlot)));
  batch.send(10, slices, *peer);
  batch.send_with_immediate(11, slices, 41, *peer);
  batch.send_inline(12, pieces_, *peer);
  batch.send_inline_with_immediate(13, pieces_[1], 43, *peer);
  batch.send_inline_with_immediate(14, pieces_, 44, *peer);
  ASSERT_OK(batch.post());
  for (const Completion& sent : rig_->complete(5)) EXPECT_TRUE(sent.ok()) << sent;

  constexpr std::array<std::uint32_t, 5> kLengths{32, 32, 15, 6, 15};
  std::size_t arrived = 0;
  const auto deadline = soon();
  while (arrived < 5 && std::chrono::steady_clock::now() < deadline) {
    auto poll = receives->start_poll();
    ASSERT_OK(poll);
    for (const verbs::ExtendedCompletion& done : *poll) {
      ASSERT_TRUE(done.ok()) << done;
      ASSERT_LT(done.id(), 5U);
      EXPECT_EQ(done.length_bytes(), kLengths[done.id()] + verbs::kDatagramHeaderBytes);
      EXPECT_TRUE(done.has_route_header());
      EXPECT_EQ(done.source_qp(), pair->number());
      EXPECT_FALSE(done.invalidated_rkey().has_value());
      const bool carries = done.id() == 1 || done.id() >= 3;
      EXPECT_EQ(done.immediate().has_value(), carries);
      if (carries) {
        EXPECT_EQ(done.immediate(), 40U + done.id());
      }
      ++arrived;
    }
  }
  ASSERT_EQ(arrived, 5U);
  const auto text_of = [&](std::size_t i) {
    return 4096 + i * kSlot + verbs::kDatagramHeaderBytes;
  };
  for (const std::size_t i : {0U, 1U}) {
    EXPECT_TRUE(same(0, text_of(i), 16));
    EXPECT_TRUE(same(32, text_of(i) + 16, 16));
  }
  EXPECT_TRUE(holds(text_of(2), "gathered inline"));
  EXPECT_TRUE(holds(text_of(3), "inline"));
  EXPECT_TRUE(holds(text_of(4), "gathered inline"));
}

}  // namespace
}  // namespace remora::test
