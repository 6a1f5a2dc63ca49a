#include "verbs_connection.h"

namespace remora::test {
namespace {

using Kind = verbs::ConnectionEvent::Kind;

TEST_F(VerbsConnection, CarriesDataBothWays) {
  auto listener = listen();
  ASSERT_OK(listener);
  ASSERT_NE(listener->local_address().port(), 0);
  auto ends = link(*listener);
  ASSERT_OK(ends);
  ends->client_rig.fill(0, 4096, 1);
  auto batch = ends->client.queue_pair().start();
  batch.write(1, ends->client_rig.memory->slice(0, 4096), ends->server_rig.memory->remote(0, 4096));
  ASSERT_OK(batch.post());
  EXPECT_TRUE(ends->client_rig.complete(1)[0].ok());
  EXPECT_EQ(std::memcmp(ends->client_rig.at(0), ends->server_rig.at(0), 4096), 0);
  auto back = ends->server.queue_pair().start();
  back.fetch_add(2, ends->server_rig.memory->slice(64, 8), ends->client_rig.memory->remote(8, 8),
                 1);
  ASSERT_OK(back.post());
  EXPECT_TRUE(ends->server_rig.complete(1)[0].ok());
}

TEST_F(VerbsConnection, TellsAddressesAndNegotiatedDepths) {
  auto listener = listen();
  ASSERT_OK(listener);
  auto ends = link(*listener);
  ASSERT_OK(ends);
  EXPECT_EQ(ends->client.peer_address(), to(*listener));
  EXPECT_EQ(ends->server.peer_address().host(), address().host());
  EXPECT_EQ(ends->client.local_address(), ends->server.peer_address());
  EXPECT_EQ(ends->client.initiator_depth(), ends->server.responder_depth());
  EXPECT_EQ(ends->server.initiator_depth(), ends->client.responder_depth());
  EXPECT_GT(ends->client.initiator_depth(), 0);
  const auto attributes = ends->client.queue_pair().query(IBV_QP_TIMEOUT | IBV_QP_MAX_QP_RD_ATOMIC);
  ASSERT_OK(attributes);
  EXPECT_EQ(attributes->timeout, 18) << "the builder's, not the connection manager's";
  EXPECT_EQ(attributes->max_rd_atomic, ends->client.initiator_depth());
}

TEST_F(VerbsConnection, DepthsAreTheLeastOfBothSides) {
  auto listener = listen();
  ASSERT_OK(listener);
  const auto ends = link(
      *listener, [](auto& client) { client.initiator_depth(4).responder_depth(2); },
      [](auto& server) { server.responder_depth(3); });
  ASSERT_OK(ends);
  EXPECT_EQ(ends->asked_initiator_depth, 4);
  EXPECT_EQ(ends->asked_responder_depth, 2);
  EXPECT_EQ(ends->client.initiator_depth(), 3);
  EXPECT_EQ(ends->client.responder_depth(), 2);
  EXPECT_EQ(ends->server.responder_depth(), 3);
  EXPECT_EQ(ends->server.initiator_depth(), 2);
}

// As the lanes of the engine have it: one side asks, the other answers.
TEST_F(VerbsConnection, OneDirectionAloneIsWhatTheQueuePairsHave) {
  auto listener = listen();
  ASSERT_OK(listener);
  auto ends = link(
      *listener, [](auto& client) { client.responder_depth(0); },
      [](auto& server) { server.initiator_depth(0); });
  ASSERT_OK(ends);
  constexpr int kDepths = IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC;
  const auto here = ends->client.queue_pair().query(kDepths);
  const auto there = ends->server.queue_pair().query(kDepths);
  ASSERT_OK(here);
  ASSERT_OK(there);
  const verbs::DeviceAttributes& device = ends->client_rig.device.attributes();
  EXPECT_EQ(here->max_rd_atomic, std::min(device.max_initiator_depth, device.max_responder_depth));
  EXPECT_EQ(here->max_rd_atomic, ends->client.initiator_depth());
  EXPECT_EQ(here->max_dest_rd_atomic, 0);
  EXPECT_EQ(there->max_rd_atomic, 0);
  EXPECT_EQ(there->max_dest_rd_atomic, here->max_rd_atomic);
}

TEST_F(VerbsConnection, PrivateDataOfTheLongestKindArrives) {
  auto listener = listen();
  ASSERT_OK(listener);
  auto side = client(to(*listener));
  ASSERT_OK(side);
  std::array<std::byte, verbs::kMaxConnectDataBytes> question{};
  std::array<std::byte, verbs::kMaxAcceptDataBytes> answer{};
  question.fill(std::byte{0x11});
  answer.fill(std::byte{0x22});
  auto connection = side->connector.start_connect({.private_data = question});
  ASSERT_OK(connection);
  auto request = listener->wait_request(soon());
  ASSERT_OK(request);
  EXPECT_TRUE(std::ranges::equal(request->private_data().first(question.size()), question));
  auto rig = Rig::create(request->device());
  ASSERT_OK(rig);
  ASSERT_OK(request->create_queue_pair(rig->builder()));
  auto server = std::move(*request).accept({.private_data = answer});
  ASSERT_OK(server);
  const auto event = connection->wait_event(soon());
  ASSERT_OK(event);
  EXPECT_EQ(event->kind, Kind::kEstablished);
  ASSERT_GE(event->private_data.bytes().size(), answer.size());
  EXPECT_TRUE(std::ranges::equal(event->private_data.bytes().first(answer.size()), answer));
}

TEST_F(VerbsConnection, DisconnectReachesTheOtherSideAndFlushes) {
  auto listener = listen();
  ASSERT_OK(listener);
  auto ends = link(*listener);
  ASSERT_OK(ends);
  ASSERT_OK(ends->server.queue_pair().post_receive(9, ends->server_rig.memory->slice(0, 64)));
  EXPECT_FALSE(ends->server.next_event()->has_value());
  ASSERT_OK(ends->client.disconnect());
  ASSERT_OK(ends->client.disconnect());
  const auto event = ends->server.wait_event(soon());
  ASSERT_OK(event);
  EXPECT_EQ(event->kind, Kind::kDisconnected);
  EXPECT_FALSE(ends->server.established());
  const auto flushed = ends->server_rig.complete(1);
  EXPECT_EQ(flushed[0].id(), 9U);
  EXPECT_TRUE(flushed[0].flushed());
  ASSERT_OK(ends->server.disconnect());
}

TEST_F(VerbsConnection, DestroyingOneSideDisconnectsTheOther) {
  auto listener = listen();
  ASSERT_OK(listener);
  auto ends = link(*listener);
  ASSERT_OK(ends);
  auto server = std::move(ends->server);
  { const auto gone = std::move(ends->client); }
  const auto event = server.wait_event(soon());
  ASSERT_OK(event);
  EXPECT_EQ(event->kind, Kind::kDisconnected);
}

TEST_F(VerbsConnection, ConnectionsOfOneDeviceShareADomain) {
  auto listener = listen();
  ASSERT_OK(listener);
  auto first = link(*listener);
  ASSERT_OK(first);
  auto connector = verbs::Connector::resolve(to(*listener), soon());
  ASSERT_OK(connector);
  EXPECT_TRUE(connector->device() == first->client.device());
  // The first connection's domain, queue and registration serve the second one.
  ASSERT_OK(connector->create_queue_pair(first->client_rig.builder()));
  auto connection = connector->start_connect();
  ASSERT_OK(connection);
  auto request = listener->wait_request(soon());
  ASSERT_OK(request);
  ASSERT_OK(request->create_queue_pair(first->server_rig.builder()));
  auto server = std::move(*request).accept();
  ASSERT_OK(server);
  ASSERT_OK(connection->wait_established(soon()));
  auto batch = connection->queue_pair().start();
  batch.write(5, first->client_rig.memory->slice(0, 8), first->server_rig.memory->remote(128, 8));
  ASSERT_OK(batch.post());
  EXPECT_TRUE(first->client_rig.complete(1)[0].ok());
}

TEST_F(VerbsConnection, ListenerMayGoBeforeItsConnections) {
  auto ends = [&]() -> Result<Link> {
    auto listener = listen();
    if (!listener) return listener.error();
    return link(*listener);
  }();
  ASSERT_OK(ends);
  auto batch = ends->client.queue_pair().start();
  batch.read(1, ends->client_rig.memory->slice(0, 64), ends->server_rig.memory->remote(0, 64));
  ASSERT_OK(batch.post());
  EXPECT_TRUE(ends->client_rig.complete(1)[0].ok());
}

TEST_F(VerbsConnection, AnyAddressListens) {
  for (const auto& any : {verbs::Address::any_ipv4(0), verbs::Address::any_ipv6(0)}) {
    auto listener = verbs::ConnectionListener::bind(any);
    ASSERT_OK(listener);
    auto ends = link(*listener);
    ASSERT_OK(ends);
    EXPECT_TRUE(ends->client.established());
  }
}

TEST_F(VerbsConnection, ManyOverOneListenerAllComeUp) {
  auto listener = listen();
  ASSERT_OK(listener);
  std::vector<Link> links;
  for (int i = 0; i < 12; ++i) {
    auto ends = link(*listener);
    ASSERT_OK(ends);
    links.push_back(std::move(*ends));
  }
  for (Link& ends : links) {
    auto batch = ends.client.queue_pair().start();
    batch.write(1, ends.client_rig.memory->slice(0, 8), ends.server_rig.memory->remote(0, 8));
    ASSERT_OK(batch.post());
    EXPECT_TRUE(ends.client_rig.complete(1)[0].ok());
  }
}

}  // namespace
}  // namespace remora::test
