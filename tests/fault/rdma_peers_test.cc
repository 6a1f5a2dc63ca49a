/// Peers over rdma that go while they connect, at each step of it, and peers that say nothing: a
/// server whose clients do so, and clients whose server does. Over tcp: lane_test.cc.

#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include <remora/verbs/verbs.h>

#include "crafty_peers.h"
#include "fault_test.h"
#include "support/server.h"
#include "transport/rdma/wire.h"

namespace remora::fault {
namespace {

constexpr std::chrono::milliseconds kPatience{1000};

class RdmaPeersTest : public FaultTest {
 protected:
  void SetUp() override {
    if (!over_rdma()) GTEST_SKIP() << "the verbs layer and librdmacm are rdma's";
    FaultTest::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    before_ = device_objects();
  }
  [[nodiscard]] FaultServerOptions server_options() const override {
    return {.regions = 2, .handshake = 3s};
  }
  using Objects = std::map<std::string, std::int64_t>;
  /// Of all processes.
  static Objects device_objects() {
    Objects found;
    const test::Resources all = test::Resources::settled();
    for (const auto& [name, count] : all.counts())
      if (name.find("device ") == 0) found.emplace(name, count);
    return found;
  }
  /// What else processes hold is looked at after each test.
  void expect_nothing_left() {
    EXPECT_TRUE(server().soon_sessions(0)) << server().ask("status");
    Objects now;
    for (const Deadline until = std::chrono::steady_clock::now() + 20s;
         std::chrono::steady_clock::now() < until;)
      if (now = device_objects(); now == before_) break;
    EXPECT_EQ(now, before_) << "I8: device objects, before and now";
  }
  /// Connects to a server that does `step`; counts how that ended.
  void meet(ServerStep step, std::chrono::milliseconds pause) {
    SCOPED_TRACE("step " + std::to_string(static_cast<int>(step)));
    const std::string address = test::listen_address(transport());
    CraftyServer server{address, step, pause};
    EngineOptions options;
    const std::chrono::milliseconds patience =
        step == ServerStep::kRejects ? 10 * kPatience : kPatience;
    options.control_deadline = patience;
    options.operation_deadline = kPatience;
    options.reconnect_for = 0s;
    options.lanes = 4;
    const Engine engine = Engine::open(options).value();
    const test::Timed timed;
    const auto opened = engine.open_region(
        "remora://" + address + ":" + std::to_string(server.port()) + "/t1?transport=rdma",
        Rights::kAll);
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - timed.began());
    EXPECT_TRUE(timed.took_at_most(patience + kGrace)) << "I3";
    ASSERT_FALSE(opened.ok());
    const Code code = opened.error().code();
    if (is_silent(step)) {
      EXPECT_EQ(code, Code::kTimedOut) << opened.error().message();
    } else if (step == ServerStep::kRejects) {
      EXPECT_EQ(code, Code::kConnectionRefused) << opened.error().message();
    } else {
      EXPECT_TRUE(code == Code::kConnectionLost || code == Code::kProtocol ||
                  code == Code::kConnectionRefused || code == Code::kTimedOut)
          << opened.error().message();
    }
    LoadReport one;
    one.operations = 1;
    one.failed[std::string{to_string(code)}] = 1;
    one.longest_verdict_ms = static_cast<std::uint64_t>(took.count());
    const std::lock_guard lock{counted_};
    count(one);
  }

  Objects before_;
  std::mutex counted_;
};

TEST_P(RdmaPeersTest, ClientsThatGoAtEachStepLeaveNothingBehind) {
  constexpr auto kSteps = static_cast<std::uint64_t>(ClientStep::kCount);
  LoadProcess& neighbour =
      start_load("t0", {"fresh=1", "rate=50", "queues=1", "threads=1", "deadline=20000"});
  const std::uint64_t count_of_rounds = exactly_rounds(22, 200);
  LoadReport gone;
  for (std::uint64_t round = 0; round < count_of_rounds; ++round) {
    const auto step = static_cast<ClientStep>(round % kSteps);
    SCOPED_TRACE("step " + std::to_string(round % kSteps));
    try {
      CraftyClient{uri("")}.go(step, std::chrono::microseconds{random().below(20'000)});
      ++gone.ok;
    } catch (const Exception& thrown) {
      ADD_FAILURE() << thrown.what();
    }
    ++gone.operations;
  }
  EXPECT_TRUE(server().soon_sessions(1)) << "only the neighbour: " << server().ask("status");
  count(gone);
  EXPECT_TRUE(finish(neighbour).failed.empty()) << "I7";
  expect_nothing_left();
}

/// What I8 is seen by: the kernel tells whose a device's objects are.
TEST_P(RdmaPeersTest, WhatAServerHoldsOfItsDeviceIsSeenInItsCounts) {
  const auto own = [this](const std::string& kind) {
    const std::string counts = server().ask("counts");
    const std::size_t at = counts.find("own " + kind + ": ");
    return at == std::string::npos ? -1 : std::atoi(counts.c_str() + at + kind.size() + 6);
  };
  const int pairs = own("qp"), regions = own("mr"), domains = own("pd");
  {
    const Engine engine = plain_engine();
    const Region region = engine.open_region(uri("t0"), Rights::kAll).value();
    EXPECT_EQ(own("qp"), pairs + 2) << "a control channel and a lane";
    EXPECT_GT(own("mr"), regions) << "the grant";
    EXPECT_EQ(own("pd"), domains + 1) << "the session's";
  }
  EXPECT_TRUE(server().soon_sessions(0));
  expect_server_back();
}

TEST_P(RdmaPeersTest, ClientsOfAServerThatGoesAtEachStepHearInTime) {
  constexpr auto kSteps = static_cast<std::uint64_t>(ServerStep::kCount);
  const std::uint64_t count_of_rounds = exactly_rounds(20, 200);
  for (std::uint64_t round = 0; round < count_of_rounds; ++round)
    meet(static_cast<ServerStep>(round % kSteps), std::chrono::milliseconds{random().below(80)});
  expect_nothing_left();
}

TEST_P(RdmaPeersTest, PeersThatAcceptAndStaySilentAreGivenUpInTime) {
  const std::uint64_t count_of_rounds = exactly_rounds(20, 200);
  constexpr std::uint64_t kAtOnce = 5;
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kAtOnce; ++i)
    threads.emplace_back([&] {
      for (std::uint64_t round = 0; round < count_of_rounds / kAtOnce; ++round)
        meet(round % 2 == 0 ? ServerStep::kStaysSilent : ServerStep::kNeverAnswers, 0ms);
    });
  for (std::thread& thread : threads) thread.join();
  expect_nothing_left();
}

/// Connects, and says nothing or as much as it likes, but takes no answer: no receive is posted.
class DeafClient {
 public:
  explicit DeafClient(const Uri& uri) {
    const Deadline deadline = std::chrono::steady_clock::now() + 10s;
    const auto address = verbs::Address::parse(uri.host, uri.port).value();
    verbs::Connector connector = verbs::Connector::resolve(address, deadline).value();
    domain_ = connector.device().allocate_domain().value();
    queue_ = connector.device().create_completion_queue({.depth = kRequests}).value();
    verbs::QueuePairBuilder<verbs::Rc> builder{domain_, queue_, queue_};
    constexpr std::uint8_t kLongest = 0;  // 655 ms, and the server's device asks six times
    builder.send_depth(kRequests).receive_depth(1).min_rnr_timer(kLongest);
    connector.create_queue_pair(builder).value();
    const auto introduction = Introduction{}.to_wire();
    connection_ = std::move(connector).connect(deadline, {.private_data = introduction}).value();
  }
  /// A hello, and requests behind it, of which the server answers as many as it has room for.
  void ask(std::size_t requests) {
    control::Request hello;
    hello.mutable_hello()->set_version_oldest(control::kVersionOldest);
    hello.mutable_hello()->set_version_newest(control::kVersionNewest);
    hello.mutable_hello()->set_auth(control::AUTH_NONE);
    hello.mutable_hello()->set_client_name("deaf");
    say(hello);
    control::Request list;
    list.mutable_list();
    // One after the other is answered: more at once would be a reason to end the session.
    for (std::size_t i = 0; i < requests; ++i, std::this_thread::sleep_for(5ms)) say(list);
  }
  static constexpr std::uint32_t kRequests = 32;

 private:
  void say(const control::Request& request) {
    control::Envelope envelope;
    envelope.set_magic(control::kMagic);
    envelope.set_id(++id_);
    *envelope.mutable_request() = request;
    said_.push_back(control::encode(envelope).value());
    memory_.push_back(domain_.register_bytes(said_.back(), verbs::Access::kLocalWrite).value());
    auto batch = connection_->queue_pair().start();
    batch.send(id_, memory_.back().slice(0, said_.back().size()));
    (void)batch.post();
  }
  verbs::ProtectionDomain domain_;
  verbs::CompletionQueue queue_;
  std::list<std::vector<std::byte>> said_;
  std::list<verbs::MemoryRegion> memory_;
  std::optional<verbs::Connection> connection_;
  std::uint64_t id_ = 0;
};

/// What becomes of a client that asks the server for something, again and again, for so long, at
/// less than half the pace that it would be slowed down to (limits.requests_per_second). What this
/// process stood still is deducted from each time.
LoadReport ask_for(std::chrono::steady_clock::duration time, const Session& session) {
  LoadReport asked;
  const test::StallWatch stalls;
  const auto until = std::chrono::steady_clock::now() + time;
  do {
    const auto began = std::chrono::steady_clock::now();
    const auto answer = session.stat("t1");
    const auto ended = std::chrono::steady_clock::now();
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
        ended - began - stalls.within(began, ended));
    ++asked.operations;
    if (answer)
      ++asked.ok;
    else
      ++asked.failed[std::string{to_string(answer.error().code())}];
    asked.longest_verdict_ms =
        std::max(asked.longest_verdict_ms, static_cast<std::uint64_t>(took.count()));
    std::this_thread::sleep_for(2ms);
  } while (std::chrono::steady_clock::now() < until);
  return asked;
}

TEST_P(RdmaPeersTest, ClientsThatTakeNoAnswersHoldUpNoOther) {
  constexpr std::size_t kDeaf = 12;
  const Engine engine = plain_engine();
  const Session session = engine.connect(uri("")).value();
  const std::uint64_t count_of_rounds = exactly_rounds(2, 20);
  for (std::uint64_t round = 0; round < count_of_rounds; ++round) {
    std::list<DeafClient> deaf;
    for (std::size_t i = 0; i < kDeaf; ++i) deaf.emplace_back(Uri::parse(uri("")).value());
    std::vector<std::thread> threads;
    for (DeafClient& one : deaf) threads.emplace_back([&one] { one.ask(16); });
    const LoadReport asked = ask_for(2s, session);
    count(asked);
    EXPECT_EQ(asked.ok, asked.operations) << "I7";
    // Half a second for each, one after the other, would be six.
    EXPECT_LT(asked.longest_verdict_ms, 5000U) << "they were waited for, one after the other";
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(server().soon_sessions(1)) << "they are not given up: " << server().ask("status");
  }
}

/// A request to be let in that waits in the server's kernel, or longer.
struct Newcomer {
  verbs::ProtectionDomain domain;
  verbs::CompletionQueue queue;
  verbs::Connector connector;

  static Newcomer knock(const Uri& uri) {
    const auto address = verbs::Address::parse(uri.host, uri.port).value();
    verbs::Connector connector =
        verbs::Connector::resolve(address, std::chrono::steady_clock::now() + 10s).value();
    auto domain = connector.device().allocate_domain().value();
    auto queue = connector.device().create_completion_queue({.depth = 4}).value();
    verbs::QueuePairBuilder<verbs::Rc> builder{domain, queue, queue};
    connector.create_queue_pair(builder.send_depth(1).receive_depth(1)).value();
    const auto introduction = Introduction{}.to_wire();
    (void)connector.start_connect({.private_data = introduction}).value();
    return {std::move(domain), std::move(queue), std::move(connector)};
  }
};

TEST_P(RdmaPeersTest, NewcomersWithoutEndKeepNoClientOut) {
  constexpr std::size_t kThreads = 4, kAtOnce = 64;
  const Engine engine = plain_engine();
  const Session session = engine.connect(uri("")).value();
  const Uri server_uri = Uri::parse(uri("")).value();
  const std::uint64_t count_of_rounds = exactly_rounds(1, 10);
  for (std::uint64_t round = 0; round < count_of_rounds; ++round) {
    std::atomic<bool> stop{false};
    std::atomic<std::size_t> knocks{0};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreads; ++i)
      threads.emplace_back([&] {
        // None of them is heard of again; the oldest go, whatever has become of them.
        std::deque<Newcomer> waiting;
        while (!stop) try {
            waiting.push_back(Newcomer::knock(server_uri));
            ++knocks;
            if (waiting.size() > kAtOnce) waiting.pop_front();
          } catch (const Exception& thrown) {
            ADD_FAILURE() << thrown.what();
            return;
          }
      });
    const LoadReport asked = ask_for(6s, session);
    stop = true;
    count(asked);
    EXPECT_EQ(asked.ok, asked.operations) << "I7, of a client that is in";
    EXPECT_LT(asked.longest_verdict_ms, 4000U) << "newcomers went first, for all of six seconds";
    for (std::thread& thread : threads) thread.join();
    EXPECT_GT(knocks, 100U);
    EXPECT_TRUE(ok(plain_engine().open_region(uri("t0"), Rights::kAll))) << "a client that comes";
    EXPECT_TRUE(server().soon_sessions(1)) << server().ask("status");
  }
}

REMORA_FAULT(RdmaPeersTest);

}  // namespace
}  // namespace remora::fault
