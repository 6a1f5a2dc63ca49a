#include <memory>
#include <optional>

#include "support/eventually.h"
#include "support/timed.h"
#include "verbs_connection.h"

namespace remora::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Kind = verbs::ConnectionEvent::Kind;

TEST_F(VerbsConnection, SilentPeerIsGivenUpAtTheDeadline) {
  auto listener = listen();  // never asked for its requests
  ASSERT_OK(listener);
  const Timed timed;
  {
    auto side = client(to(*listener));
    ASSERT_OK(side);
    const auto connection = side->connector.connect(verbs::deadline_in(milliseconds{1500}));
    ASSERT_FALSE(connection.ok());
    EXPECT_EQ(connection.error().code(), Code::kTimedOut) << connection.error();
    EXPECT_EQ(connection.error().subject(), to(*listener).to_string());
    EXPECT_FALSE(side->connector.answer().has_value());
    // Spent: the id is gone already.
    EXPECT_CODE(side->connector.start_connect(), kClosed);
  }
  EXPECT_TRUE(timed.took_at_most(milliseconds{15000})) << "and destroying did not wait";
}

TEST_F(VerbsConnection, RejectCarriesItsReason) {
  auto listener = listen();
  ASSERT_OK(listener);
  auto side = client(to(*listener));
  ASSERT_OK(side);
  auto connection = side->connector.start_connect();
  ASSERT_OK(connection);
  auto request = listener->wait_request(soon());
  ASSERT_OK(request);
  ASSERT_OK(std::move(*request).reject(bytes_of("no room")));
  const Status up = connection->wait_established(soon());
  ASSERT_FALSE(up.ok());
  EXPECT_EQ(up.error().code(), Code::kConnectionRefused) << up.error();
  ASSERT_TRUE(connection->failure().has_value());
  EXPECT_EQ(connection->failure()->kind, Kind::kRejected);
  EXPECT_EQ(connection->failure()->status, 28);
  EXPECT_EQ(text_of(connection->failure()->private_data.bytes()), "no room");
}

TEST_F(VerbsConnection, DroppedRequestIsRejected) {
  auto listener = listen();
  ASSERT_OK(listener);
  auto side = client(to(*listener));
  ASSERT_OK(side);
  auto connection = side->connector.start_connect();
  ASSERT_OK(connection);
  {
    auto request = listener->wait_request(soon());
    ASSERT_OK(request);
    auto rig = Rig::create(request->device());
    ASSERT_OK(rig);
    ASSERT_OK(request->create_queue_pair(rig->builder()));
  }
  EXPECT_CODE(connection->wait_established(soon()), kConnectionRefused);
}

TEST_F(VerbsConnection, DyingListenerRejectsWhatWaits) {
  auto listener = listen();
  ASSERT_OK(listener);
  auto side = client(to(*listener));
  ASSERT_OK(side);
  auto connection = side->connector.start_connect();
  ASSERT_OK(connection);
  { const auto gone = std::move(*listener); }
  EXPECT_CODE(connection->wait_established(soon()), kConnectionRefused);
}

TEST_F(VerbsConnection, PortWithoutAListenerIsRefused) {
  auto side = client(address(7999));
  ASSERT_OK(side);
  const auto connection = side->connector.connect(soon());
  ASSERT_FALSE(connection.ok());
  EXPECT_EQ(connection.error().code(), Code::kConnectionRefused);
  EXPECT_NE(connection.error().message().find(address(7999).to_string()), std::string::npos);
  ASSERT_TRUE(side->connector.answer().has_value());
  EXPECT_EQ(side->connector.answer()->status, 8) << "the kernel's: no such service";
}

TEST_F(VerbsConnection, AddressInUseNamesIt) {
  auto listener = listen();
  ASSERT_OK(listener);
  const auto second = verbs::ConnectionListener::bind(to(*listener));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), Code::kAddressInUse) << second.error();
  EXPECT_EQ(second.error().subject(), to(*listener).to_string());
  EXPECT_EQ(second.error().system_errno(), EADDRINUSE);
}

TEST_F(VerbsConnection, AddressOfNoDeviceIsNotFound) {
  const auto listener =
      verbs::ConnectionListener::bind(verbs::Address::parse("192.0.2.77", 7471).value());
  ASSERT_FALSE(listener.ok());
  EXPECT_EQ(listener.error().code(), Code::kNotFound) << listener.error();
}

TEST_F(VerbsConnection, AddressWithoutARouteIsUnreachable) {
  const auto connector =
      verbs::Connector::resolve(verbs::Address::parse("192.0.2.77", 7471).value(), soon());
  ASSERT_FALSE(connector.ok());
  EXPECT_EQ(connector.error().code(), Code::kUnreachable) << connector.error();
  EXPECT_EQ(connector.error().subject(), "192.0.2.77:7471");
}

TEST_F(VerbsConnection, NeighbourThatDoesNotAnswerMeetsTheDeadline) {
  // An address of the subnet without a host: address resolution waits for an ARP answer that never
  // comes.
  std::string host = address().host();
  host = host.substr(0, host.rfind('.')) + ".231";
  const Timed timed;
  const auto connector = verbs::Connector::resolve(verbs::Address::parse(host, 7471).value(),
                                                   verbs::deadline_in(milliseconds{800}));
  ASSERT_FALSE(connector.ok());
  EXPECT_TRUE(connector.error().code() == Code::kTimedOut ||
              connector.error().code() == Code::kUnreachable)
      << connector.error();
  EXPECT_TRUE(timed.took_at_most(milliseconds{15000}));
}

TEST_F(VerbsConnection, ClientGivingUpBeforeAcceptIsNoticed) {
  auto listener = listen();
  ASSERT_OK(listener);
  auto side = client(to(*listener));
  ASSERT_OK(side);
  {
    auto connection = side->connector.start_connect();
    ASSERT_OK(connection);
  }
  auto request = listener->wait_request(soon());
  ASSERT_OK(request);
  auto rig = Rig::create(request->device());
  ASSERT_OK(rig);
  // Told at the first step after the withdrawal has arrived; at the last by the peer's answer.
  const Status made = request->create_queue_pair(rig->builder());
  const auto server =
      made.ok() ? std::move(*request).accept(soon()) : Result<verbs::Connection>{made.error()};
  ASSERT_FALSE(server.ok());
  EXPECT_TRUE(server.error().code() == Code::kConnectionLost ||
              server.error().code() == Code::kConnectionRefused)
      << server.error();
}

/// Reads requests until there is one.
Result<std::optional<verbs::WaitingRequest>> read_request(verbs::ConnectionListener& listener) {
  Result<std::optional<verbs::WaitingRequest>> request = std::optional<verbs::WaitingRequest>{};
  (void)test::eventually([&] {
    request = listener.next_waiting();
    return !request || request->has_value();
  });
  return request;
}

TEST_F(VerbsConnection, RequestThatItsClientWithdrawsWhileItWaitsIsToldFromOneThatItDoesNot) {
  auto listener = listen();
  ASSERT_OK(listener);
  auto side = client(to(*listener));
  ASSERT_OK(side);
  auto other = client(to(*listener));
  ASSERT_OK(other);
  auto connection = std::make_unique<Result<verbs::Connection>>(side->connector.start_connect());
  ASSERT_OK(*connection);
  auto first = read_request(*listener);
  ASSERT_OK(first);
  auto stays = other->connector.start_connect();
  ASSERT_OK(stays);
  auto second = read_request(*listener);
  ASSERT_OK(second);
  ASSERT_TRUE(first->has_value() && second->has_value());
  EXPECT_FALSE((*first)->withdrawn());
  connection.reset();
  EXPECT_TRUE(test::eventually([&] { return (*first)->withdrawn(); }));
  EXPECT_FALSE((*second)->withdrawn());
  auto taken = std::move(**second).take();
  ASSERT_OK(taken);
  auto rig = Rig::create(taken->device());
  ASSERT_OK(rig);
  ASSERT_OK(taken->create_queue_pair(rig->builder()));
  ASSERT_OK(std::move(*taken).accept());
}

TEST_F(VerbsConnection, WaitForARequestEndsAtTheDeadline) {
  auto listener = listen();
  ASSERT_OK(listener);
  EXPECT_CODE(listener->wait_request(verbs::deadline_in(milliseconds{50})), kTimedOut);
}

TEST_F(VerbsConnection, DomainOfAnotherDeviceHandleIsRefused) {
  auto listener = listen();
  ASSERT_OK(listener);
  auto own = verbs::devices().value().find(device_name_).value().open();  // its own context
  ASSERT_OK(own);
  auto rig = Rig::create(*own);
  ASSERT_OK(rig);
  auto connector = verbs::Connector::resolve(to(*listener), soon());
  ASSERT_OK(connector);
  EXPECT_CODE(connector->create_queue_pair(rig->builder()), kInvalidArgument);
  EXPECT_CODE(connector->start_connect(), kInvalidArgument);  // no queue pair
}

TEST_F(VerbsConnection, HundredAbandonedAttemptsLeaveNothing) {
  auto listener = listen();
  ASSERT_OK(listener);
  for (int i = 0; i < 100; ++i) {
    auto connector = verbs::Connector::resolve(to(*listener), soon());
    ASSERT_OK(connector);
    if (i % 2 == 0) continue;
    auto rig = Rig::create(connector->device(), 4096);
    ASSERT_OK(rig);
    ASSERT_OK(connector->create_queue_pair(rig->builder()));
    const auto connection = connector->start_connect();
    // The listener's backlog takes them until it is full; then the kernel refuses by an event.
    ASSERT_OK(connection);
  }
}

}  // namespace
}  // namespace remora::test
