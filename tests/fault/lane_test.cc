/// Connections that break in the middle, while they are made, or say nothing: by a proxy, over tcp.
/// What peers do that say nonsense: tests/conformance/tcp_peers_test.cc.

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fault_test.h"
#include "proxy.h"

namespace remora::fault {
namespace {

using Clock = std::chrono::steady_clock;

class LaneTest : public FaultTest {
 protected:
  void SetUp() override {
    if (!over_tcp()) GTEST_SKIP() << "the proxy speaks tcp";
    FaultTest::SetUp();
    proxy_.emplace(server().port());
  }
  void TearDown() override {
    proxy_.reset();
    FaultTest::TearDown();
  }
  TcpProxy& proxy() { return *proxy_; }
  [[nodiscard]] std::string uri_by_proxy(const std::string& region = "t0") {
    return uri(region, proxy_->port());
  }
  /// Through `cuts` or more of them, each of which it had come back from.
  static void expect_went_on(const LoadReport& report, std::uint64_t cuts) {
    EXPECT_EQ(report.lives, 1U);
    EXPECT_EQ(report.opened, 1U) << "one session all the time";
    EXPECT_EQ(report.lost, 0U);
    EXPECT_EQ(report.resumed, report.interrupted);
    EXPECT_GE(report.resumed, cuts);
  }

  [[nodiscard]] bool soon_pairs(std::size_t wanted) {
    return test::eventually([&] { return proxy().pairs() == wanted; });
  }
  /// Of so many cuts: on a slow machine one may come before the session is resumed from the last.
  static constexpr std::uint64_t most_of(std::uint64_t cuts) { return (cuts + 1) / 2; }

  /// Cuts a connection of a load many times; with `all_at_once`, every second time all of them.
  void cut_mid_transfer(std::vector<std::string> options, std::size_t connections,
                        bool all_at_once) {
    LoadProcess& one = start_load_by(uri_by_proxy(), std::move(options));
    const std::uint64_t count = rounds(20, 200);
    for (std::uint64_t round = 0; round < count; ++round) {
      // Its control connection and its lanes: the session is there again.
      ASSERT_TRUE(soon_pairs(connections));
      pause_for_a_while(30ms, 150ms);
      if (all_at_once && round % 2 == 0)
        ASSERT_EQ(proxy().cut_all(), connections);
      else
        ASSERT_TRUE(proxy().cut_one(random().next()));
      ASSERT_TRUE(server().soon_sessions(1));
    }
    pause_for_a_while(200ms, 300ms);
    const LoadReport report = finish(one);
    expect_went_on(report, most_of(count));
    EXPECT_GT(report.failed.count("indeterminate"), 0U) << "nothing was in flight";
  }

 private:
  std::optional<TcpProxy> proxy_;
};

TEST_P(LaneTest, CutMidTransfer) { cut_mid_transfer({"fresh=1"}, 2, true); }

TEST_P(LaneTest, CutMidTransferOnSeveralLanes) {
  cut_mid_transfer({"fresh=1", "lanes=4"}, 5, false);
}

TEST_P(LaneTest, CutWhileItConnectsAgain) {
  LoadProcess& one = start_load_by(uri_by_proxy(), {"fresh=1"});
  const std::uint64_t count = rounds(20, 200);
  for (std::uint64_t round = 0; round < count; ++round) {
    ASSERT_TRUE(soon_pairs(2));
    pause_for_a_while(20ms, 80ms);
    const std::uint64_t before = proxy().cut_short();
    proxy().cut_new_after(random().below(400));
    ASSERT_EQ(proxy().cut_all(), 2U);
    EXPECT_TRUE(test::eventually([&] { return proxy().cut_short() > before; }))
        << "it was not cut while it connected";
    pause_for_a_while(0ms, 80ms);
    proxy().cut_no_more();
  }
  pause_for_a_while(2500ms, 2600ms);  // one pause of the backoff
  expect_went_on(finish(one), most_of(count));
}

TEST_P(LaneTest, PeerThatAcceptsAndStaysSilentIsGivenUpInTime) {
  proxy().be_silent(true);
  const std::uint64_t count = rounds(20, 200);
  std::atomic<std::uint64_t> timed_out{0};
  const test::Timed timed;
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 10; ++i)
    threads.emplace_back([&] {
      EngineOptions options;
      options.control_deadline = 200ms;
      for (std::uint64_t round = 0; round < count / 10; ++round) {
        const Engine engine = Engine::open(options).value();
        const auto began = Clock::now();
        const auto opened = engine.open_region(uri_by_proxy(), Rights::kAll);
        EXPECT_TRUE(timed.took_at_most(200ms + kGrace, began)) << "I3";
        if (fails_with(opened, Code::kTimedOut)) ++timed_out;
        count_one(opened ? ok_status() : Status{opened.error()}, Clock::now() - began);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(timed_out, count);
}

TEST_P(LaneTest, ClientsOfAServerThatHangsUpDoNotStorm) {
  const std::uint64_t clients = 8;
  rounds(clients, clients);
  std::vector<LoadProcess*> loads;
  for (std::uint64_t i = 0; i < clients; ++i)
    loads.push_back(&start_load_by(uri_by_proxy(), {"rate=200", "threads=1", "queues=0", "swaps=0",
                                                    "adds=0", "fresh=1", "reads=1", "writes=0"}));
  proxy().cut_new_after(0);
  const std::uint64_t before = proxy().accepted();
  ASSERT_EQ(proxy().cut_all(), 2 * clients);
  const auto began = Clock::now();
  std::this_thread::sleep_for(3s);
  EXPECT_TRUE(test::eventually([&] { return proxy().accepted() - before >= 2 * clients; }));
  const std::uint64_t attempts = proxy().accepted() - before;
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - began);
  proxy().cut_no_more();
  // First within 20 ms, then with pauses that double, up to 2 s: at most 9 in 3 s, and one each
  // second later.
  EXPECT_GE(attempts, 2 * clients);
  EXPECT_LE(attempts, (12 + static_cast<std::uint64_t>((waited - 3s).count())) * clients);
  EXPECT_TRUE(soon_pairs(2 * clients)) << "not all came back";
  ASSERT_TRUE(server().soon_sessions(clients));
  pause_for_a_while(300ms, 500ms);
  for (LoadProcess* load : loads) expect_went_on(finish(*load), 1);
}

REMORA_FAULT(LaneTest);

}  // namespace
}  // namespace remora::fault
