#include "fake_verbs.h"

namespace remora::test {
namespace {

using std::chrono::milliseconds;

class ListenerTest : public FakeTest {
 protected:
  static verbs::Address here(std::uint16_t port = 0) {
    return verbs::Address::parse("10.0.0.1", port).value();
  }
  static verbs::Deadline soon() { return verbs::deadline_in(milliseconds{10'000}); }
  [[nodiscard]] Result<verbs::ConnectionListener> bind() const {
    return verbs::ConnectionListener::bind(here(), 8, fake_.provider());
  }
};

TEST_F(ListenerTest, FreePortIsTold) {
  const auto listener = bind();
  ASSERT_OK(listener);
  EXPECT_EQ(listener->local_address(), here(4242));
}

TEST_F(ListenerTest, BindFailuresAreTyped) {
  const auto expect = [&](const char* call, int number, Code code) {
    fake_.fail(call, 1, number);
    const auto listener = bind();
    ASSERT_FALSE(listener.ok());
    EXPECT_EQ(listener.error().code(), code);
    EXPECT_EQ(listener.error().subject(), "10.0.0.1:0");
    EXPECT_EQ(listener.error().system_errno(), number);
  };
  expect("bind_addr", EADDRINUSE, Code::kAddressInUse);
  expect("bind_addr", EADDRNOTAVAIL, Code::kNotFound);
  expect("bind_addr", ENODEV, Code::kNotFound);
  expect("bind_addr", EACCES, Code::kPermissionDenied);
  expect("listen", EADDRINUSE, Code::kAddressInUse);
  expect("listen", EIO, Code::kProvider);
}

TEST_F(ListenerTest, NothingWaitsAtFirst) {
  auto listener = bind().value();
  EXPECT_FALSE(listener.next_request()->has_value());
  EXPECT_CODE(listener.wait_request(verbs::deadline_in(milliseconds{20})), kTimedOut);
}

TEST_F(ListenerTest, RequestTellsWhatThePeerWants) {
  auto listener = bind().value();
  fake_.knock("hello", 4, 2);
  const auto request = listener.wait_request(soon());
  ASSERT_OK(request);
  EXPECT_EQ(request->private_data().size(), 5U);
  EXPECT_EQ(request->peer_initiator_depth(), 4);
  EXPECT_EQ(request->peer_responder_depth(), 2);
  EXPECT_EQ(request->device().name(), "fake0");
  EXPECT_NE(request->event_fd(), listener.event_fd());
}

TEST_F(ListenerTest, WaitingRequestHasNoChannelUntilItIsTaken) {
  auto listener = bind().value();
  const int channels = fake_.uses("create_event_channel");
  fake_.knock("hello", 4, 2);
  auto waiting = listener.next_waiting();
  ASSERT_OK(waiting);
  ASSERT_TRUE(waiting->has_value());
  EXPECT_EQ(fake_.uses("create_event_channel"), channels);
  EXPECT_EQ((*waiting)->private_data().size(), 5U);
  EXPECT_EQ((*waiting)->device_name(), "fake0");
  EXPECT_FALSE((*waiting)->withdrawn());
  const auto request = std::move(**waiting).take();
  ASSERT_OK(request);
  EXPECT_EQ(fake_.uses("create_event_channel"), channels + 1);
  EXPECT_EQ(request->peer_initiator_depth(), 4);
  EXPECT_EQ(request->peer_responder_depth(), 2);
  EXPECT_NE(request->event_fd(), listener.event_fd());
  EXPECT_EQ(fake_.rejects, 0);
}

TEST_F(ListenerTest, WaitingRequestThatIsDroppedOrNotTakenRejects) {
  auto listener = bind().value();
  fake_.knock("");
  { const auto dropped = listener.next_waiting(); }
  EXPECT_EQ(fake_.rejects, 1);
  for (const char* const call : {"create_event_channel", "migrate_id"}) {
    fake_.knock("");
    auto waiting = listener.next_waiting();
    ASSERT_OK(waiting);
    fake_.fail(call);
    EXPECT_CODE(std::move(**waiting).take(), kProvider);
    // NOLINTNEXTLINE(bugprone-use-after-move): what it answers then is the point.
    EXPECT_CODE(std::move(**waiting).take(), kClosed);
  }
  EXPECT_FALSE(listener.next_waiting()->has_value());
}

TEST_F(ListenerTest, WaitingRequestThatThePeerHasWithdrawnIsTold) {
  auto listener = bind().value();
  fake_.knock("");
  auto waiting = listener.next_waiting();
  ASSERT_OK(waiting);
  fake_.fail("init_qp_attr", 1, EINVAL);
  EXPECT_TRUE((*waiting)->withdrawn());
}

TEST_F(ListenerTest, AcceptNegotiatesTheDepths) {
  auto listener = bind().value();
  fake_.knock("", 4, 2);
  auto request = listener.wait_request(soon()).value();
  const FakeRig rig{request.device()};
  ASSERT_OK(request.create_queue_pair(rig.builder()));
  const auto connection = std::move(request).accept(soon());
  ASSERT_OK(connection);
  EXPECT_TRUE(connection->established());
  EXPECT_EQ(connection->responder_depth(), 4);
  EXPECT_EQ(connection->initiator_depth(), 2);
  EXPECT_EQ(fake_.last_parameters.responder_resources, 4);
  EXPECT_EQ(fake_.last_parameters.initiator_depth, 2);
  EXPECT_EQ(fake_.last_parameters.qp_num, 0x77U);
  EXPECT_EQ(fake_.rejects, 0);
}

TEST_F(ListenerTest, DeviceThatAnswersFewerOrNoneSaysSoWhenItAccepts) {
  for (const int depth_max : {2, 0}) {
    fake_.attributes.max_qp_rd_atom = depth_max;
    auto listener = bind().value();
    fake_.knock("", 4, 0);
    auto request = listener.wait_request(soon()).value();
    const FakeRig rig{request.device()};
    ASSERT_OK(request.create_queue_pair(rig.builder()));
    const auto connection = std::move(request).accept(soon());
    ASSERT_OK(connection);
    EXPECT_EQ(connection->responder_depth(), depth_max);
    EXPECT_EQ(connection->initiator_depth(), 0) << "the peer answers nothing";
    EXPECT_EQ(fake_.last_parameters.responder_resources, depth_max);
    EXPECT_EQ(fake_.last_parameters.initiator_depth, 0);
  }
}

TEST_F(ListenerTest, AcceptWithoutAQueuePairRejects) {
  auto listener = bind().value();
  fake_.knock("");
  auto request = listener.wait_request(soon()).value();
  EXPECT_CODE(std::move(request).accept(), kInvalidArgument);
  EXPECT_EQ(fake_.rejects, 1);
  // NOLINTBEGIN(bugprone-use-after-move): what it answers then is the point.
  EXPECT_CODE(std::move(request).accept(), kClosed);
  EXPECT_CODE(std::move(request).reject(), kClosed);
  // NOLINTEND(bugprone-use-after-move)
}

TEST_F(ListenerTest, TooMuchPrivateDataRejects) {
  const std::vector<std::byte> data(197);
  auto listener = bind().value();
  fake_.knock("");
  auto request = listener.wait_request(soon()).value();
  const FakeRig rig{request.device()};
  ASSERT_OK(request.create_queue_pair(rig.builder()));
  const auto connection = std::move(request).accept({.private_data = data});
  EXPECT_CODE(connection, kLimitExceeded);
  EXPECT_EQ(connection.error().allowed(), 196U);
  fake_.knock("");
  auto other = listener.wait_request(soon()).value();
  EXPECT_CODE(std::move(other).reject(std::span{data}.first(149)), kLimitExceeded);
  EXPECT_EQ(fake_.rejects, 2);
}

TEST_F(ListenerTest, WithdrawnRequestIsALostConnection) {
  auto listener = bind().value();
  fake_.knock("");
  auto request = listener.wait_request(soon()).value();
  const FakeRig rig{request.device()};
  fake_.fail("init_qp_attr", 1, EINVAL);
  EXPECT_CODE(request.create_queue_pair(rig.builder()), kConnectionLost);
  ASSERT_OK(request.create_queue_pair(rig.builder()));
  fake_.fail("accept", 1, EINVAL);
  const auto connection = std::move(request).accept();
  EXPECT_CODE(connection, kConnectionLost);
  EXPECT_EQ(connection.error().reason(), Reason::kPeerGone);
}

TEST_F(ListenerTest, RejectCarriesItsData) {
  auto listener = bind().value();
  fake_.knock("");
  auto request = listener.wait_request(soon()).value();
  const std::string why = "full";
  ASSERT_OK(std::move(request).reject(std::as_bytes(std::span{why})));
  EXPECT_EQ(fake_.last_rejected, "full");
  EXPECT_EQ(fake_.rejects, 1);
}

TEST_F(ListenerTest, DroppedAndOverwrittenRequestsAreRejected) {
  auto listener = bind().value();
  fake_.knock("1");
  fake_.knock("2");
  auto first = listener.wait_request(soon()).value();
  first = listener.wait_request(soon()).value();
  EXPECT_EQ(fake_.rejects, 1);
  { const auto gone = std::move(first); }
  EXPECT_EQ(fake_.rejects, 2);
}

TEST_F(ListenerTest, RequestThatCannotBeTakenOverIsDropped) {
  auto listener = bind().value();
  for (const char* call : {"create_event_channel", "migrate_id", "query_device"}) {
    fake_.knock("");
    fake_.fail(call, 1, EMFILE);
    EXPECT_CODE(listener.next_request(), kProvider);
  }
  fake_.knock("");
  ASSERT_OK(listener.wait_request(soon()));  // and it goes on
}

TEST_F(ListenerTest, RemovedDeviceIsTold) {
  auto listener = bind().value();
  fake_.push(listener.raw(), RDMA_CM_EVENT_DEVICE_REMOVAL);
  const auto request = listener.next_request();
  EXPECT_CODE(request, kProvider);
  EXPECT_EQ(request.error().system_errno(), ENODEV);
}

}  // namespace
}  // namespace remora::test
