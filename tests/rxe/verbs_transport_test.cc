// Unreliable connections, datagrams, shared receive queues and manual bring-up on a real device.
#include "verbs_loopback.h"

namespace remora::test {
namespace {

using verbs::Access;
using verbs::Completion;
using verbs::LocalSlice;
using verbs::Opcode;
using verbs::QueuePairAttributes;
using verbs::QueuePairState;

class VerbsTransport : public VerbsLoopback {};

TEST_F(VerbsTransport, UnreliableConnectionSendsAndWrites) {
  auto prepared = verbs::QueuePairBuilder<verbs::Uc>{rig_->domain, rig_->queue, rig_->queue}
                      .inline_bytes(64)
                      .build();
  ASSERT_OK(prepared);
  const auto self = prepared->endpoint();
  auto pair = std::move(*prepared).connect(self);
  ASSERT_OK(pair);
  rig_->fill(0, 512, 1);
  ASSERT_OK(pair->post_receive(1, local(4096, 512)));
  ASSERT_OK(pair->post_receive(2, LocalSlice{}));
  auto batch = pair->start();
  batch.write(3, local(0, 256), remote(8192, 256));
  batch.send(4, local(0, 512));
  batch.write_with_immediate(5, local(0, 8), remote(16384, 8), 42);
  ASSERT_OK(batch.post());
  int receives = 0;
  for (const Completion& done : rig_->complete(5)) {
    EXPECT_TRUE(done.ok()) << done;
    receives += done.is_receive() ? 1 : 0;
    if (done.opcode() == Opcode::kReceiveWriteImmediate) {
      EXPECT_EQ(done.immediate(), 42U);
    }
  }
  EXPECT_EQ(receives, 2);
  EXPECT_TRUE(same(0, 8192, 256));
  EXPECT_TRUE(same(0, 4096, 512));
}

TEST_F(VerbsTransport, DatagramsGoThereAndBack) {
  const auto make = [&] {
    return verbs::QueuePairBuilder<verbs::Ud>{rig_->domain, rig_->queue, rig_->queue}
        .inline_bytes(64)
        .build();
  };
  auto first = make();
  auto second = make();
  ASSERT_OK(first);
  ASSERT_OK(second);
  // As two processes would: over the wire form.
  const auto told = verbs::DatagramEndpoint::from_wire(second->endpoint().to_wire());
  ASSERT_OK(told);
  const auto peer = verbs::DatagramPeer::create(rig_->domain, *told, first->source());
  ASSERT_OK(peer);
  const std::uint32_t qkey = first->endpoint().qkey;
  auto here = std::move(*first).activate();
  auto there = std::move(*second).activate();
  ASSERT_OK(here);
  ASSERT_OK(there);
  rig_->fill(0, 200, 2);
  ASSERT_OK(there->post_receive(20, local(4096, 512)));
  auto batch = here->start();
  batch.send_with_immediate(1, local(0, 200), 7, *peer).unsignaled();
  ASSERT_OK(batch.post());
  const auto arrived = rig_->complete(1)[0];
  ASSERT_TRUE(arrived.ok()) << arrived;
  EXPECT_EQ(arrived.length_bytes(), 200U + verbs::kDatagramHeaderBytes);
  EXPECT_EQ(arrived.source_qp(), here->number());
  EXPECT_EQ(arrived.immediate(), 7U);
  EXPECT_TRUE(same(0, 4096 + verbs::kDatagramHeaderBytes, 200));

  ASSERT_TRUE(arrived.has_route_header());
  auto handle = verbs::AddressHandle::reply(
      rig_->domain, arrived, std::span{rig_->bytes}.subspan(4096, verbs::kDatagramHeaderBytes));
  ASSERT_OK(handle);
  const verbs::DatagramPeer back{std::move(*handle), arrived.source_qp(), qkey};
  ASSERT_OK(here->post_receive(21, local(8192, 512)));
  auto answer = there->start();
  const std::array<std::byte, 3> text{std::byte{'y'}, std::byte{'e'}, std::byte{'s'}};
  answer.send_inline(2, text, back).unsignaled();
  ASSERT_OK(answer.post());
  const auto answered = rig_->complete(1)[0];
  EXPECT_TRUE(answered.ok()) << answered;
  EXPECT_EQ(answered.id(), 21U);
  EXPECT_EQ(std::memcmp(rig_->at(8192 + verbs::kDatagramHeaderBytes), "yes", 3), 0);
}

TEST_F(VerbsTransport, SharedReceivesServeTwoPairs) {
  const auto shared = verbs::SharedReceiveQueue::create(rig_->domain, {.depth = 16, .sge = 1});
  ASSERT_OK(shared);
  auto receives = shared->start_receives();
  for (std::uint64_t i = 0; i < 4; ++i) receives.receive(100 + i, local(4096 + i * 64, 64));
  ASSERT_OK(receives.post());
  std::vector<verbs::QueuePair<verbs::Rc>> pairs;
  for (int i = 0; i < 2; ++i) {
    auto prepared = rig_->builder().shared_receive_queue(*shared).build();
    ASSERT_OK(prepared);
    const auto self = prepared->endpoint();
    auto pair = std::move(*prepared).connect(self);
    ASSERT_OK(pair);
    pairs.push_back(std::move(*pair));
  }
  for (auto& pair : pairs) {
    auto batch = pair.start();
    batch.send_inline(1, std::as_bytes(std::span{"shared"})).unsignaled();
    ASSERT_OK(batch.post());
    const auto done = rig_->complete(1)[0];
    ASSERT_TRUE(done.ok()) << done;
    EXPECT_EQ(done.qp_number(), pair.number());
    EXPECT_GE(done.id(), 100U);
  }
  const auto attributes = shared->query();
  ASSERT_OK(attributes);
  EXPECT_GE(attributes->depth, 16U);
}

TEST_F(VerbsTransport, SharedQueueTellsWhenItRunsLow) {
  auto events = verbs::AsyncEvents::open(rig_->device);
  ASSERT_OK(events);
  int tag = 0;
  const auto shared =
      verbs::SharedReceiveQueue::create(rig_->domain, {.depth = 16, .context = &tag});
  ASSERT_OK(shared);
  for (std::uint64_t i = 0; i < 2; ++i) ASSERT_OK(shared->post_receive(i, local(4096, 64)));
  ASSERT_OK(shared->set_limit(2));
  connect(rig_->builder().shared_receive_queue(*shared));
  auto batch = pair_->start();
  batch.send_inline(1, std::as_bytes(std::span{"one"})).unsignaled();
  ASSERT_OK(batch.post());
  EXPECT_TRUE(rig_->complete(1)[0].ok());
  const auto event = events->wait_event(soon());
  ASSERT_OK(event);
  EXPECT_EQ(event->kind, verbs::AsyncEvent::Kind::kSharedReceiveLimit) << *event;
  EXPECT_EQ(event->object, shared->raw());
  EXPECT_EQ(event->context, &tag);
}

TEST_F(VerbsTransport, ManualBringUpWorks) {
  auto pair = rig_->builder().create();
  ASSERT_OK(pair);
  EXPECT_EQ(pair->query()->state, QueuePairState::kReset);
  const auto port = rig_->device.query_port(1).value();
  const auto gid = rig_->device.choose_gid()->taken().value();
  QueuePairAttributes to_init;
  to_init.state = QueuePairState::kInit;
  to_init.port = 1;
  to_init.pkey_index = 0;
  to_init.access = Rig::kAllRights;
  ASSERT_OK(pair->modify(to_init));
  QueuePairAttributes to_rtr;
  to_rtr.state = QueuePairState::kRtr;
  to_rtr.mtu = port.active_mtu;
  to_rtr.destination_qp = pair->number();
  to_rtr.receive_psn = 3;
  to_rtr.responder_depth = 4;
  to_rtr.min_rnr_timer = 12;
  to_rtr.path = verbs::AddressVector{
      .port = 1,
      .lid = port.lid,
      .route = verbs::GlobalRoute{.destination = gid.gid,
                                  .source_index = static_cast<std::uint8_t>(gid.index)}};
  ASSERT_OK(pair->modify(to_rtr));
  QueuePairAttributes to_rts;
  to_rts.state = QueuePairState::kRts;
  to_rts.send_psn = 3;
  to_rts.timeout = 18;
  to_rts.retry_count = 7;
  to_rts.rnr_retry_count = 7;
  to_rts.initiator_depth = 4;
  ASSERT_OK(pair->modify(to_rts));
  const auto now = pair->query();
  ASSERT_OK(now);
  EXPECT_EQ(now->state, QueuePairState::kRts);
  EXPECT_EQ(now->destination_qp, pair->number());
  EXPECT_EQ(now->timeout, 18);
  EXPECT_EQ(now->path->route->destination, gid.gid);
  rig_->fill(0, 64, 3);
  auto batch = pair->start();
  batch.write(1, local(0, 64), remote(8192, 64));
  ASSERT_OK(batch.post());
  EXPECT_TRUE(rig_->complete(1)[0].ok());
  EXPECT_TRUE(same(0, 8192, 64));
}

TEST_F(VerbsTransport, RefusedStepNamesWhatIsMissing) {
  const auto pair = rig_->builder().create();
  ASSERT_OK(pair);
  QueuePairAttributes step;
  step.state = QueuePairState::kInit;
  step.port = 1;
  const auto missing = pair->modify(step);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().subject(), "RESET to INIT: missing access, pkey_index");
  step.pkey_index = 0;
  step.access = Access::kNone;
  step.send_psn = 1;
  const auto surplus = pair->modify(step);
  ASSERT_FALSE(surplus.ok());
  EXPECT_EQ(surplus.error().subject(), "RESET to INIT: surplus send_psn");
}

TEST_F(VerbsTransport, RouteThatFailsIsDiagnosed) {
  auto prepared = rig_->builder().build();
  ASSERT_OK(prepared);
  auto peer = prepared->endpoint();
  peer.gid = verbs::Gid{};
  peer.gid.bytes[0] = 0x20;  // 2001:db8::9, while ours is IPv4
  peer.gid.bytes[1] = 0x01;
  peer.gid.bytes[2] = 0x0d;
  peer.gid.bytes[3] = 0xb8;
  peer.gid.bytes[15] = 9;
  if (!prepared->endpoint().gid.is_ipv4_mapped()) GTEST_SKIP() << "the device has no IPv4 GID";
  const auto pair = std::move(*prepared).connect(peer);
  ASSERT_FALSE(pair.ok());
  EXPECT_EQ(pair.error().code(), Code::kUnreachable) << pair.error();
  EXPECT_EQ(pair.error().reason(), Reason::kGidFamily) << pair.error();
  EXPECT_NE(pair.error().subject().find(" to 2001:db8::9"), std::string::npos) << pair.error();
}

TEST_F(VerbsTransport, PeerWithoutARouteIsUnreachable) {
  auto prepared = rig_->builder().build();
  ASSERT_OK(prepared);
  if (!prepared->endpoint().gid.is_ipv4_mapped()) GTEST_SKIP() << "the device has no IPv4 GID";
  auto peer = prepared->endpoint();
  peer.gid.bytes[12] = 203;  // 203.0.113.7: documentation, routed nowhere
  peer.gid.bytes[13] = 0;
  peer.gid.bytes[14] = 113;
  peer.gid.bytes[15] = 7;
  const auto pair = std::move(*prepared).connect(peer);
  ASSERT_FALSE(pair.ok());
  EXPECT_EQ(pair.error().code(), Code::kUnreachable) << pair.error();
  EXPECT_EQ(pair.error().reason(), Reason::kNoNeighbour) << pair.error();
  EXPECT_NE(pair.error().subject().find("::ffff:203.0.113.7"), std::string::npos);
}

TEST_F(VerbsTransport, InlinePiecesAndImmediateLists) {
  const std::string one = "gathered ";
  const std::string two = "inline";
  const std::array<std::span<const std::byte>, 2> pieces{std::as_bytes(std::span{one}),
                                                         std::as_bytes(std::span{two})};
  rig_->fill(0, 64, 5);
  const std::array<LocalSlice, 2> slices{local(0, 16), local(32, 16)};
  ASSERT_OK(pair_->post_receive(1, local(4096, 64)));
  ASSERT_OK(pair_->post_receive(2, local(4200, 64)));
  ASSERT_OK(pair_->post_receive(3, LocalSlice{}));
  auto batch = pair_->start();
  batch.write_inline(10, pieces, remote(8192, 15)).unsignaled();
  batch.send_inline(11, pieces).unsignaled();
  batch.send_with_immediate(12, slices, 8).unsignaled();
  batch.write_with_immediate(13, slices, remote(16384, 32), 9).unsignaled();
  ASSERT_OK(batch.post());
  const auto done = rig_->complete(3);
  EXPECT_EQ(done[0].length_bytes(), 15U);
  EXPECT_EQ(done[1].immediate(), 8U);
  EXPECT_EQ(done[1].length_bytes(), 32U);
  EXPECT_EQ(done[2].immediate(), 9U);
  EXPECT_EQ(std::memcmp(rig_->at(8192), "gathered inline", 15), 0);
  EXPECT_EQ(std::memcmp(rig_->at(4096), "gathered inline", 15), 0);
  EXPECT_TRUE(same(0, 16384, 16));
  EXPECT_TRUE(same(32, 16384 + 16, 16));
}

}  // namespace
}  // namespace remora::test
