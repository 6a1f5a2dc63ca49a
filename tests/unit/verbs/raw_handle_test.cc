// What verbs and librdmacm call the same thing: every handle gives it.
#include "fake_verbs.h"

namespace remora::test {
namespace {

using std::chrono::milliseconds;

verbs::Deadline raw_soon() { return verbs::deadline_in(milliseconds{10'000}); }

class RawHandle : public FakeTest {};

TEST_F(RawHandle, OfDeviceObjectsHangTogether) {
  const auto list = verbs::devices(fake_.provider()).value();
  EXPECT_EQ(list[0].raw(), &fake_.device);
  const FakeRig rig{list[0].open().value()};
  ibv_context* const context = rig.device.raw();
  EXPECT_EQ(context->device, list[0].raw());
  ibv_pd* const domain = rig.domain.raw();
  EXPECT_EQ(domain->context, context);
  EXPECT_EQ(rig.memory.raw()->pd, domain);
  EXPECT_EQ(rig.memory.raw()->addr, rig.bytes.data());
  EXPECT_EQ(rig.queue.raw()->context, context);
  EXPECT_EQ(rig.queue.raw()->channel, rig.queue.channel().raw());
  EXPECT_EQ(rig.queue.channel().raw()->context, context);
  const auto shared = verbs::SharedReceiveQueue::create(rig.domain).value();
  EXPECT_EQ(shared.raw()->pd, domain);
  EXPECT_EQ(verbs::SharedReceiveQueue{}.raw(), nullptr);
  auto pair = rig.builder().shared_receive_queue(shared).create().value();
  EXPECT_EQ(pair.raw()->pd, domain);
  EXPECT_EQ(pair.raw()->srq, shared.raw());
  const auto window = pair.allocate_window().value();
  EXPECT_EQ(window.raw()->pd, domain);
  const auto handle = verbs::AddressHandle::create(rig.domain, {}).value();
  EXPECT_EQ(handle.raw()->pd, domain);
}

TEST_F(RawHandle, OfAQueueWithFieldsIsTheExtendedOneToo) {
  const auto device = open();
  const auto plain = device.create_completion_queue({.depth = 8}).value();
  EXPECT_EQ(plain.raw_extended(), nullptr);
  const auto queue =
      device.create_completion_queue({.fields = verbs::CompletionFields::kStandard}).value();
  ASSERT_NE(queue.raw_extended(), nullptr);
  EXPECT_EQ(ibv_cq_ex_to_cq(queue.raw_extended()), queue.raw());
  EXPECT_TRUE(fake_.extended.contains(queue.raw()));
  fake_.completions.emplace_back();
  for (const auto& done : queue.start_poll().value()) EXPECT_EQ(done.raw(), queue.raw_extended());
}

TEST_F(RawHandle, OfAConnectionIsItsIdAtEveryStep) {
  const auto peer = verbs::Address::parse("10.0.0.9", 7471).value();
  auto resolver = verbs::Resolver::start(peer, raw_soon(), {}, fake_.provider()).value();
  rdma_cm_id* const id = resolver.raw();
  ASSERT_NE(id, nullptr);
  EXPECT_EQ(id->channel->fd, resolver.event_fd());
  EXPECT_FALSE(resolver.advance().value().has_value());
  auto connector = resolver.advance().value();
  ASSERT_TRUE(connector.has_value());
  EXPECT_EQ(resolver.raw(), nullptr);
  EXPECT_EQ(connector->raw(), id);
  EXPECT_EQ(id->verbs, connector->device().raw());
  const FakeRig rig{connector->device()};
  ASSERT_OK(connector->create_queue_pair(rig.builder()));
  auto connection = connector->connect(raw_soon());
  ASSERT_OK(connection);
  EXPECT_EQ(connector->raw(), nullptr);
  EXPECT_EQ(connection->raw(), id);
}

TEST_F(RawHandle, OfAListenerAndItsRequestAreTheirIds) {
  auto listener = verbs::ConnectionListener::bind(verbs::Address::any_ipv4(0), 4, fake_.provider());
  ASSERT_OK(listener);
  EXPECT_EQ(listener->raw(), fake_.listener);
  fake_.knock("one");
  const auto request = listener->wait_request(raw_soon());
  ASSERT_OK(request);
  ASSERT_NE(request->raw(), nullptr);
  EXPECT_EQ(request->raw()->channel->fd, request->event_fd());
  EXPECT_EQ(request->raw()->verbs, request->device().raw());
}

}  // namespace
}  // namespace remora::test
