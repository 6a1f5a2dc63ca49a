#include <sstream>
#include <thread>

#include "rxe_child.h"
#include "rxe_perftest.h"
#include "verbs_connection.h"

namespace remora::test {
namespace {

using Kind = verbs::ConnectionEvent::Kind;

constexpr std::uint32_t kPerftestBytes = 1024;
constexpr std::uint32_t kPerftestIterations = 40;
constexpr int kPerftestOpening = 5;  // messages before the second connection
constexpr int kPerftestOffers = 5;   // and between it and the test
constexpr int kPerftestReport = 5;

// perftest is not ours, and two connections of rdma_create_qp: one for control, one for the test.
class VerbsPerftest : public VerbsConnection {
 protected:
  /// The second connection, with memory and a queue pair of its own.
  struct Data {
    Rig rig;
    verbs::Connection connection;
  };

  [[nodiscard]] RxeChild perftest(const std::string& tool, std::uint16_t port, bool client) const {
    std::vector<std::string> command{tool,
                                     "-R",
                                     "-F",
                                     "-d",
                                     device_name_,
                                     "-n",
                                     std::to_string(kPerftestIterations),
                                     "-s",
                                     std::to_string(kPerftestBytes),
                                     "-p",
                                     std::to_string(port)};
    if (client) command.push_back(address().host());
    return RxeChild{std::move(command), RxeChild::Errors::kMerged};
  }

  static verbs::QueuePairBuilder<verbs::Rc> data_builder(const Rig& rig) {
    return rig.builder().receive_depth(kPerftestIterations);
  }
  static Status post_receives(verbs::QueuePair<verbs::Rc>& queue_pair, const Rig& rig) {
    for (std::uint32_t i = 0; i < kPerftestIterations; ++i)
      if (const Status posted = queue_pair.post_receive(i, rig.memory->slice(0, kPerftestBytes));
          !posted)
        return posted;
    return {};
  }
  static PerftestOffer offer(const Rig& rig) { return {rig.memory->address(), rig.memory->rkey()}; }

  // The peer does not say when it listens, neither at first nor for the second connection.
  template <typename Prepare>
  Result<Data> connect(std::uint16_t port, const Prepare& prepare) {
    const auto give_up = soon();
    for (;;) {
      auto side = client(address(port));
      if (!side) return side.error();
      if (const Status ready = prepare(side->connector.queue_pair(), side->rig); !ready)
        return ready.error();
      auto connection = side->connector.connect(soon());
      if (connection) return Data{std::move(side->rig), std::move(*connection)};
      if (connection.error().code() != Code::kConnectionRefused ||
          std::chrono::steady_clock::now() >= give_up)
        return connection.error();
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
    }
  }
  static Status nothing(verbs::QueuePair<verbs::Rc>& /*queue_pair*/, Rig& /*rig*/) { return {}; }

  template <typename Builder, typename Prepare>
  static Result<Data> accept(verbs::ConnectionListener& listener, const Builder& builder,
                             const Prepare& prepare) {
    auto request = listener.wait_request(soon());
    if (!request) return request.error();
    auto rig = Rig::create(request->device());
    if (!rig) return rig.error();
    if (const Status made = request->create_queue_pair(builder(*rig)); !made) return made.error();
    if (const Status ready = prepare(request->queue_pair(), *rig); !ready) return ready.error();
    auto connection = std::move(*request).accept(soon());
    if (!connection) return connection.error();
    return Data{std::move(*rig), std::move(*connection)};
  }
  static verbs::QueuePairBuilder<verbs::Rc> control_builder(const Rig& rig) {
    return rig.builder();
  }

  // A line of its table: bytes, iterations, and rates by its own clock, not ours to judge.
  static bool has_table(const std::string& told) {
    std::istringstream lines{told};
    for (std::string line; std::getline(lines, line);) {
      std::istringstream fields{line};
      std::uint64_t bytes = 0;
      std::uint64_t iterations = 0;
      std::string peak;
      std::string average;
      if (fields >> bytes >> iterations >> peak >> average && bytes == kPerftestBytes &&
          iterations == kPerftestIterations)
        return true;
    }
    return false;
  }
  static void expect_success(RxeChild& peer) {
    const std::string told = peer.rest();
    EXPECT_TRUE(has_table(told)) << told;
    EXPECT_EQ(peer.wait(), 0) << told;
  }
};

TEST_F(VerbsPerftest, OurServerTakesTheMessagesOfIbSendBw) {
  auto listener = listen();
  ASSERT_OK(listener);
  auto peer = perftest("ib_send_bw", listener->local_address().port(), true);
  auto first = accept(*listener, &control_builder, &PerftestControl::prepare);
  ASSERT_OK(first);
  PerftestControl control{std::move(first->connection), std::move(first->rig), {}};
  ASSERT_TRUE(control.answer(kPerftestOpening));
  auto data = accept(*listener, &data_builder, &post_receives);
  ASSERT_OK(data);
  ASSERT_TRUE(control.answer(kPerftestOffers));
  for (const auto& done : data->rig.complete(kPerftestIterations)) {
    ASSERT_TRUE(done.ok()) << done;
    EXPECT_EQ(done.length_bytes(), kPerftestBytes);
  }
  ASSERT_TRUE(control.answer(1));
  ASSERT_OK(data->connection.disconnect());
  expect_success(peer);
}

TEST_F(VerbsPerftest, OurServerIsReadByIbReadBw) {
  auto listener = listen();
  ASSERT_OK(listener);
  auto peer = perftest("ib_read_bw", listener->local_address().port(), true);
  auto first = accept(*listener, &control_builder, &PerftestControl::prepare);
  ASSERT_OK(first);
  auto memory = Rig::create(first->connection.device());
  ASSERT_OK(memory);
  PerftestControl control{std::move(first->connection), std::move(first->rig), offer(*memory)};
  ASSERT_TRUE(control.answer(kPerftestOpening));
  const auto with_memory = [&](const Rig&) { return memory->builder(); };
  auto data = accept(*listener, with_memory, &nothing);
  ASSERT_OK(data);
  ASSERT_TRUE(control.answer(kPerftestOffers + kPerftestReport + 1));
  ASSERT_OK(data->connection.disconnect());
  expect_success(peer);
}

TEST_F(VerbsPerftest, OurClientSendsToIbSendBw) {
  constexpr std::uint16_t kPort = 18516;
  auto peer = perftest("ib_send_bw", kPort, false);
  auto first = connect(kPort, &PerftestControl::prepare);
  ASSERT_OK(first);
  PerftestControl control{std::move(first->connection), std::move(first->rig), {}};
  ASSERT_TRUE(control.open());
  auto data = connect(kPort, &nothing);
  ASSERT_OK(data);
  ASSERT_TRUE(control.exchange_offers());
  auto batch = data->connection.queue_pair().start();
  for (std::uint32_t i = 0; i < kPerftestIterations; ++i)
    batch.send(i, data->rig.memory->slice(0, kPerftestBytes));
  ASSERT_OK(batch.post());
  for (const auto& done : data->rig.complete(kPerftestIterations)) ASSERT_TRUE(done.ok()) << done;
  ASSERT_TRUE(control.close());
  EXPECT_EQ(data->connection.wait_event(soon()).value().kind, Kind::kDisconnected);
  expect_success(peer);
}

TEST_F(VerbsPerftest, OurClientReadsFromIbReadBw) {
  constexpr std::uint16_t kPort = 18517;
  auto peer = perftest("ib_read_bw", kPort, false);
  auto first = connect(kPort, &PerftestControl::prepare);
  ASSERT_OK(first);
  PerftestControl control{std::move(first->connection), std::move(first->rig), {}};
  ASSERT_TRUE(control.open());
  auto data = connect(kPort, &nothing);
  ASSERT_OK(data);
  ASSERT_TRUE(control.exchange_offers());
  const verbs::RemoteSlice theirs{control.peer().address, kPerftestBytes, control.peer().rkey};
  auto batch = data->connection.queue_pair().start();
  for (std::uint32_t i = 0; i < kPerftestIterations; ++i)
    batch.read(i, data->rig.memory->slice(0, kPerftestBytes), theirs);
  ASSERT_OK(batch.post());
  for (const auto& done : data->rig.complete(kPerftestIterations)) ASSERT_TRUE(done.ok()) << done;
  ASSERT_TRUE(control.report(kPerftestBytes, kPerftestIterations));
  ASSERT_TRUE(control.close());
  EXPECT_EQ(data->connection.wait_event(soon()).value().kind, Kind::kDisconnected);
  expect_success(peer);
}

}  // namespace
}  // namespace remora::test
