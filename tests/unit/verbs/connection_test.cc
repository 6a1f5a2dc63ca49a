#include <functional>
#include <limits>

#include "fake_verbs.h"
#include "support/forked.h"

namespace remora::test {
namespace {

using std::chrono::milliseconds;
using Kind = verbs::ConnectionEvent::Kind;

class ConnectorTest : public FakeTest {
 protected:
  static verbs::Address peer() { return verbs::Address::parse("10.0.0.9", 7471).value(); }
  static verbs::Deadline soon() { return verbs::deadline_in(milliseconds{10'000}); }
  [[nodiscard]] Result<verbs::Connector> resolve(
      const verbs::ConnectorOptions& options = {}) const {
    return verbs::Connector::resolve(peer(), soon(), options, fake_.provider());
  }
};

TEST_F(ConnectorTest, MissingDeviceIsNotFound) {
  fake_.fail("create_event_channel", 1, ENODEV);
  EXPECT_CODE(resolve(), kNotFound);
}

TEST_F(ConnectorTest, NamespaceWithoutADeviceIsNamed) {
  fake_.by_namespace = true;
  ASSERT_OK(resolve());
  const auto expect_named = [](const Error& error) {
    EXPECT_EQ(error.code(), Code::kNotFound);
    EXPECT_TRUE(error.subject().starts_with("net:[")) << error;
    EXPECT_NE(error.remedy().find("rdma dev set DEVICE netns"), std::string_view::npos) << error;
  };
  fake_.fail("create_event_channel", 1, ENODEV);
  const auto client = resolve();
  ASSERT_FALSE(client.ok());
  expect_named(client.error());
  fake_.device_count = 0;
  const auto server = verbs::devices(fake_.provider());
  ASSERT_FALSE(server.ok());
  expect_named(server.error());
}

TEST_F(ConnectorTest, NoRouteIsUnreachable) {
  fake_.fail("resolve_addr", 1, ENETUNREACH);
  const auto connector = resolve();
  EXPECT_CODE(connector, kUnreachable);
  EXPECT_EQ(connector.error().subject(), "10.0.0.9:7471");
  EXPECT_EQ(connector.error().system_errno(), ENETUNREACH);
  fake_.fail("resolve_route", 1, EHOSTUNREACH);
  EXPECT_CODE(resolve(), kUnreachable);
}

TEST_F(ConnectorTest, SilentResolutionMeetsTheDeadline) {
  fake_.resolve = false;
  const auto connector =
      verbs::Connector::resolve(peer(), verbs::deadline_in(milliseconds{20}), {}, fake_.provider());
  EXPECT_CODE(connector, kTimedOut);
}

// A neighbour is looked for during three seconds of however many, unless it is asked for anew.
TEST_F(ConnectorTest, PeerThatComesBackIsAskedForAgain) {
  const verbs::Deadline deadline = verbs::deadline_in(std::chrono::seconds{60});
  fake_.address_time_outs = 3;
  fake_.route_time_outs = 2;
  ASSERT_OK(verbs::Connector::resolve(peer(), deadline, {}, fake_.provider()));
  EXPECT_EQ(fake_.address_time_outs, 0);
  EXPECT_EQ(fake_.route_time_outs, 0);
  EXPECT_LE(fake_.resolve_longest_ms, 2000);
}

TEST_F(ConnectorTest, TimeOutsOfTheKernelEndWithTheDeadline) {
  fake_.address_time_outs = std::numeric_limits<int>::max();
  const auto connector =
      verbs::Connector::resolve(peer(), verbs::deadline_in(milliseconds{20}), {}, fake_.provider());
  EXPECT_CODE(connector, kTimedOut);
  EXPECT_EQ(connector.error().subject(), "10.0.0.9:7471");
}

TEST_F(ConnectorTest, AckTimeoutIsChecked) {
  EXPECT_CODE(resolve({.source = {}, .ack_timeout = 32}), kInvalidArgument);
  fake_.fail("set_option", 1, ENOSYS);
  EXPECT_CODE(resolve({.source = {}, .ack_timeout = 18}), kUnsupported);
  ASSERT_OK(resolve({.source = {}, .ack_timeout = 18}));
}

TEST_F(ConnectorTest, OptionsOfTheRouteAreSetBeforeItIsResolved) {
  ASSERT_OK(resolve());
  EXPECT_TRUE(fake_.options.empty()) << "what is not asked for stays the kernel's choice";
  ASSERT_OK(resolve({.source = {}, .ack_timeout = 18, .traffic_class = 106}));
  EXPECT_EQ(fake_.options.at(RDMA_OPTION_ID_ACK_TIMEOUT), 18);
  EXPECT_EQ(fake_.options.at(RDMA_OPTION_ID_TOS), 106);
  fake_.fail("set_option", 1, EINVAL);
  EXPECT_CODE(resolve({.source = {}, .ack_timeout = {}, .traffic_class = 106}), kProvider);
}

class PathTest : public ConnectorTest {
 protected:
  /// What the queue pair was given with the path (RTR) and with its time-outs (RTS).
  struct Given {
    ibv_qp_attr init{};
    ibv_qp_attr receive{};
    ibv_qp_attr send{};
  };
  Given connect(const std::function<void(verbs::QueuePairBuilder<verbs::Rc>&)>& set = {}) {
    auto connector = resolve().value();
    const FakeRig rig{connector.device()};
    auto builder = rig.builder();
    if (set) set(builder);
    fake_.modified.clear();
    EXPECT_TRUE(connector.create_queue_pair(builder).ok());
    EXPECT_TRUE(connector.connect(soon()).ok());
    return {fake_.modified.at(0).first, fake_.modified.at(1).first, fake_.modified.at(2).first};
  }
};

TEST_F(PathTest, TheRoutesValuesHoldWhereTheBuilderHasNone) {
  const Given given = connect();
  EXPECT_EQ(given.init.pkey_index, 3);
  EXPECT_EQ(given.receive.path_mtu, IBV_MTU_2048);
  EXPECT_EQ(given.receive.ah_attr.sl, 1);
  EXPECT_EQ(given.receive.ah_attr.grh.traffic_class, 8);
  EXPECT_EQ(given.receive.ah_attr.grh.hop_limit, 9);
  EXPECT_EQ(given.receive.ah_attr.grh.flow_label, 10U);
  EXPECT_EQ(given.receive.ah_attr.grh.sgid_index, 11);
  EXPECT_EQ(given.send.timeout, 5);
  EXPECT_EQ(given.send.retry_cnt, 7);
  EXPECT_EQ(given.send.rnr_retry, 6);
}

TEST_F(PathTest, TheBuildersValuesAreCarriedIntoTheConnection) {
  const Given given = connect([](auto& builder) {
    builder.pkey_index(0)
        .mtu(IBV_MTU_1024)
        .service_level(0)
        .traffic_class(106)
        .hop_limit(255)
        .flow_label(0)
        .gid_index(2)
        .timeout(14)
        .retry_count(2)
        .rnr_retry_count(7);
  });
  EXPECT_EQ(given.init.pkey_index, 0);
  EXPECT_EQ(given.receive.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(given.receive.ah_attr.sl, 0);
  EXPECT_EQ(given.receive.ah_attr.grh.traffic_class, 106);
  EXPECT_EQ(given.receive.ah_attr.grh.hop_limit, 255);
  EXPECT_EQ(given.receive.ah_attr.grh.flow_label, 0U);
  EXPECT_EQ(given.receive.ah_attr.grh.sgid_index, 2);
  EXPECT_EQ(given.send.timeout, 14);
  EXPECT_EQ(given.send.retry_cnt, 2);
  EXPECT_EQ(given.send.rnr_retry, 7);
  EXPECT_EQ(fake_.last_parameters.retry_count, 2);
  EXPECT_EQ(fake_.last_parameters.rnr_retry_count, 7);
}

TEST_F(PathTest, MtuIsNeverMoreThanTheRouteHas) {
  const Given given = connect([](auto& builder) { builder.mtu(IBV_MTU_4096); });
  EXPECT_EQ(given.receive.path_mtu, IBV_MTU_2048);
}

TEST_F(PathTest, LeastTimeoutRaisesTheRoutesAndNeverLowersIt) {
  const auto least = [](auto& builder) { builder.timeout_at_least(18); };
  EXPECT_EQ(connect(least).send.timeout, 18);
  fake_.route_timeout = 20;
  EXPECT_EQ(connect(least).send.timeout, 20);
  fake_.route_timeout = 0;  // for ever
  EXPECT_EQ(connect(least).send.timeout, 0);
  const auto both = [](auto& builder) { builder.timeout(14).timeout_at_least(18); };
  EXPECT_EQ(connect(both).send.timeout, 14);
}

TEST_F(ConnectorTest, ConnectNeedsAQueuePairOfItsDevice) {
  auto connector = resolve().value();
  EXPECT_CODE(connector.connect(soon()), kInvalidArgument);
  const FakeRig other{open()};
  EXPECT_CODE(connector.create_queue_pair(other.builder()), kInvalidArgument);
  const FakeRig rig{connector.device()};
  ASSERT_OK(connector.create_queue_pair(rig.builder()));
  EXPECT_CODE(connector.create_queue_pair(rig.builder()), kAlreadyExists);
}

TEST_F(ConnectorTest, PrivateDataIsBounded) {
  auto connector = resolve().value();
  const FakeRig rig{connector.device()};
  ASSERT_OK(connector.create_queue_pair(rig.builder()));
  const std::vector<std::byte> data(57);
  const auto connection = connector.start_connect({.private_data = data});
  EXPECT_CODE(connection, kLimitExceeded);
  EXPECT_EQ(connection.error().asked(), 57U);
  EXPECT_EQ(connection.error().allowed(), 56U);
  ASSERT_OK(connector.start_connect({.private_data = std::span{data}.first(56)}));
}

TEST_F(ConnectorTest, AnswerBringsTheQueuePairUp) {
  fake_.answer_data = "welcome";
  auto connector = resolve().value();
  const FakeRig rig{connector.device()};
  ASSERT_OK(connector.create_queue_pair(rig.builder().timeout(18).initiator_depth(4)));
  const auto connection = connector.connect(soon());
  ASSERT_OK(connection);
  EXPECT_TRUE(connection->established());
  EXPECT_EQ(connection->queue_pair().query_state().value(), verbs::QueuePairState::kRts);
  EXPECT_EQ(fake_.last_parameters.qp_num, 0x77U);
  EXPECT_EQ(fake_.last_parameters.initiator_depth, 4);
  EXPECT_EQ(fake_.modified.back().first.timeout, 18) << "the builder's, not the kernel's";
  EXPECT_EQ(connection->initiator_depth(), 4);
  EXPECT_EQ(connection->responder_depth(), 8) << "what the peer allows";
  EXPECT_EQ(connector.answer()->private_data.bytes().size(), 7U);
  EXPECT_CODE(connector.start_connect(), kClosed);
}

TEST_F(ConnectorTest, ChildOfForkLeavesTheConnectionAlone) {
  auto connector = resolve().value();
  const FakeRig rig{connector.device()};
  ASSERT_OK(connector.create_queue_pair(rig.builder()));
  std::optional<verbs::Connection> connection{connector.connect(soon()).value()};
  const std::string live = fake_.live();
  const auto uses = fake_.uses();
  Forked child{[&] {
    std::string wrong = not_refused("next_event", connection->next_event());
    wrong += not_refused("disconnect", connection->disconnect());
    connection.reset();
    if (fake_.live() != live || fake_.uses() != uses) wrong += "left: " + fake_.live();
    return wrong;
  }};
  EXPECT_EQ(child.found(), "");
  EXPECT_EQ(fake_.live(), live);
  EXPECT_TRUE(connection->established());
  EXPECT_TRUE(connection->disconnect().ok());
}

TEST_F(ConnectorTest, DepthsOfADeviceThatKeepsFewOrNoneInFlightAreOffered) {
  for (const int depth_max : {1, 0}) {
    fake_.attributes.max_qp_init_rd_atom = depth_max;
    auto connector = resolve().value();
    const FakeRig rig{connector.device()};
    ASSERT_OK(connector.create_queue_pair(rig.builder().responder_depth(0)));
    const auto connection = connector.connect(soon());
    ASSERT_OK(connection);
    EXPECT_EQ(fake_.last_parameters.initiator_depth, depth_max);
    EXPECT_EQ(fake_.last_parameters.responder_resources, 0);
    EXPECT_EQ(connection->initiator_depth(), depth_max);
    EXPECT_EQ(connection->responder_depth(), 0);
    EXPECT_EQ(fake_.modified.back().first.max_rd_atomic, depth_max);
  }
}

TEST_F(ConnectorTest, RejectIsRefusedAndKeepsItsData) {
  fake_.answer = FakeVerbs::Answer::kReject;
  fake_.answer_data = "go away";
  auto connector = resolve().value();
  const FakeRig rig{connector.device()};
  ASSERT_OK(connector.create_queue_pair(rig.builder()));
  EXPECT_CODE(connector.connect(soon()), kConnectionRefused);
  ASSERT_TRUE(connector.answer().has_value());
  EXPECT_EQ(connector.answer()->kind, Kind::kRejected);
  EXPECT_EQ(connector.answer()->private_data.bytes().size(), 7U);
}

TEST_F(ConnectorTest, SilentPeerMeetsTheDeadline) {
  fake_.answer = FakeVerbs::Answer::kSilence;
  auto connector = resolve().value();
  const FakeRig rig{connector.device()};
  ASSERT_OK(connector.create_queue_pair(rig.builder()));
  const auto connection = connector.connect(verbs::deadline_in(milliseconds{20}));
  EXPECT_CODE(connection, kTimedOut);
  EXPECT_EQ(connection.error().subject(), "10.0.0.9:7471");
}

TEST_F(ConnectorTest, KernelsOwnTimeOutIsATimeOut) {
  fake_.answer = FakeVerbs::Answer::kUnreachable;
  auto connector = resolve().value();
  const FakeRig rig{connector.device()};
  ASSERT_OK(connector.create_queue_pair(rig.builder()));
  EXPECT_CODE(connector.connect(soon()), kTimedOut);
}

TEST_F(ConnectorTest, FailureToFollowTheAnswerRejectsThePeer) {
  auto connector = resolve().value();
  const FakeRig rig{connector.device()};
  ASSERT_OK(connector.create_queue_pair(rig.builder()));
  fake_.fail("modify_qp", 1, EIO);
  EXPECT_CODE(connector.connect(soon()), kProvider);
  EXPECT_EQ(fake_.rejects, 1);
}

TEST_F(ConnectorTest, DisconnectionBreaksTheQueuePair) {
  auto connector = resolve().value();
  const FakeRig rig{connector.device()};
  ASSERT_OK(connector.create_queue_pair(rig.builder()));
  auto connection = connector.connect(soon()).value();
  EXPECT_FALSE(connection.next_event()->has_value());
  fake_.push(connection.raw(), RDMA_CM_EVENT_DISCONNECTED);
  const auto event = connection.next_event();
  ASSERT_OK(event);
  EXPECT_EQ((*event)->kind, Kind::kDisconnected);
  EXPECT_EQ((*event)->error(peer()).code(), Code::kConnectionLost);
  EXPECT_FALSE(connection.established());
  EXPECT_EQ(connection.failure()->kind, Kind::kDisconnected);
  EXPECT_EQ(connection.queue_pair().query_state().value(), verbs::QueuePairState::kErr);
  fake_.fail("disconnect", 1, EINVAL);  // the kernel's answer when the peer was first
  ASSERT_OK(connection.disconnect());
  ASSERT_OK(connection.disconnect());
  EXPECT_EQ(fake_.uses("disconnect"), 1);
}

TEST_F(ConnectorTest, OtherEventsAreTold) {
  auto connector = resolve().value();
  const FakeRig rig{connector.device()};
  ASSERT_OK(connector.create_queue_pair(rig.builder()));
  auto connection = connector.connect(soon()).value();
  for (const auto& [raw, kind] : {std::pair{RDMA_CM_EVENT_ADDR_CHANGE, Kind::kAddressChanged},
                                  std::pair{RDMA_CM_EVENT_TIMEWAIT_EXIT, Kind::kTimeWaitExit},
                                  std::pair{RDMA_CM_EVENT_MULTICAST_JOIN, Kind::kOther},
                                  std::pair{RDMA_CM_EVENT_DEVICE_REMOVAL, Kind::kDeviceRemoved}}) {
    fake_.push(connection.raw(), raw);
    const auto event = connection.wait_event(soon());
    ASSERT_OK(event);
    EXPECT_EQ(event->kind, kind);
  }
  EXPECT_CODE(connection.wait_established(soon()), kConnectionLost);
}

TEST_F(ConnectorTest, PeerThatAnswersAndIsGoneIsALostConnection) {
  // The kernel refuses what follows the answer: the second use is for RTR, the third for RTS.
  for (const auto& [call, nth] :
       {std::pair{"init_qp_attr", 1}, std::pair{"init_qp_attr", 2}, std::pair{"establish", 1}}) {
    auto connector = resolve().value();
    const FakeRig rig{connector.device()};
    ASSERT_OK(connector.create_queue_pair(rig.builder()));
    fake_.fail(call, nth, EINVAL);
    const auto connection = connector.connect(soon());
    EXPECT_CODE(connection, kConnectionLost);
    EXPECT_EQ(connection.error().reason(), Reason::kPeerGone);
  }
  // Before it has answered, an argument is to blame.
  auto connector = resolve().value();
  const FakeRig rig{connector.device()};
  fake_.fail("init_qp_attr", 1, EINVAL);
  EXPECT_CODE(connector.create_queue_pair(rig.builder()), kProvider);
}

TEST_F(ConnectorTest, EventFailureIsKept) {
  auto connector = resolve().value();
  const FakeRig rig{connector.device()};
  ASSERT_OK(connector.create_queue_pair(rig.builder()));
  auto connection = connector.start_connect().value();
  fake_.fail("get_cm_event", 1, EIO);
  EXPECT_CODE(connection.next_event(), kProvider);
  fake_.fail("disconnect", 1, EIO);
  EXPECT_CODE(connection.disconnect(), kProvider);
}

TEST_F(ConnectorTest, MoveAssignmentDestroysTheOldConnectionWhole) {
  auto first = resolve().value();
  const FakeRig rig{first.device()};
  ASSERT_OK(first.create_queue_pair(rig.builder()));
  auto second = resolve().value();
  ASSERT_OK(second.create_queue_pair(rig.builder()));
  auto connection = first.connect(soon()).value();
  connection = second.connect(soon()).value();
  EXPECT_EQ(fake_.uses("destroy_id"), 1);
  EXPECT_TRUE(connection.established());
}

}  // namespace
}  // namespace remora::test
