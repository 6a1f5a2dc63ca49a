/// The load notices what it is there to notice: each lie about a region is one that it reports.

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <gmock/gmock.h>
#include <memory>
#include <thread>

#include "fault_test.h"
#include "load_ledger.h"
#include "support/callgrind.h"
#include "support/server.h"

namespace remora::fault {
namespace {

using Clock = std::chrono::steady_clock;
using testing::HasSubstr;

class LoadTest : public FaultTest {
 protected:
  /// A load on a server in this process, while `lie` is told by it.
  LoadReport run_with(const std::function<void(const RegionView&)>& lie) {
    test::ServerOptions options;
    options.pool_bytes = 16_MiB;
    config::ServerConfig config = test::server_config(transport(), options);
    config.regions.push_back(
        {.name = "t0", .size_bytes = kRegionBytes, .shm = transport() == TransportKind::kShm});
    Server server = Server::start(config).value();
    LoadOptions load;
    load.uri = uri("t0", server.port());
    load.fresh = true;
    load.rate = over_rdma() ? 1000 : 4000;
    load.duration = 60s;
    load.varied = varied_;
    const RegionView view = server.view("t0").value();
    if (last_lie_) load.at_rest = [&] { last_lie_(view); };
    // For a while after the lie, whenever that was.
    const auto after = over_rdma() ? 4s : 1s;
    std::atomic<Clock::time_point> until{Clock::time_point::max()};
    LoadReport report = run_load(
        load, [&] { return Clock::now() >= until.load(); },
        [&] {
          lie(view);
          until = Clock::now() + after;
        });
    server.stop();
    return report;
  }
  static constexpr const char* kLieIsARace = "the lie is a race of the server with itself";
  bool varied_ = false;
  /// Told when the load's last operation has ended, and before it looks at everything once more.
  std::function<void(const RegionView&)> last_lie_;
};

TEST_P(LoadTest, QuietServerIsFoundWell) {
  const LoadReport report = run_with([](const RegionView& /*view*/) {});
  EXPECT_EQ(report.violations_total, 0U) << report.json();
  EXPECT_GT(report.atomics, 0U);
  EXPECT_GT(report.blocks_checked, 0U);
  EXPECT_EQ(LoadReport::from_json(report.json()).json(), report.json());
}

TEST_P(LoadTest, NoticesAndZeroesAreFoundWell) {
  varied_ = true;
  const LoadReport report = run_with([](const RegionView& /*view*/) {});
  EXPECT_EQ(report.violations_total, 0U) << report.json();
  EXPECT_TRUE(report.failed.empty());
}

TEST_P(LoadTest, BytesThatChangeAreNoticed) {
  if (test::kThreadSanitized) GTEST_SKIP() << kLieIsARace;
  const LoadReport report = run_with([](const RegionView& view) {
    const std::vector<std::byte> wrong(8, std::byte{0x11});
    for (int round = 0; round < 20; ++round, std::this_thread::sleep_for(10ms))
      for (std::uint64_t block = 1; block < 257; ++block)
        view.write(ByteOffset{block * kLoadBlockBytes + 1000}, wrong).value();
  });
  EXPECT_THAT(report.violations, testing::Contains(HasSubstr("I1: torn")));
}

TEST_P(LoadTest, BlocksThatGoBackToZeroAreNoticed) {
  if (test::kThreadSanitized) GTEST_SKIP() << kLieIsARace;
  const LoadReport report = run_with([](const RegionView& view) {
    const std::vector<std::byte> zero(256 * kLoadBlockBytes);
    std::this_thread::sleep_for(300ms);
    for (int round = 0; round < 20; ++round, std::this_thread::sleep_for(5ms))
      view.write(ByteOffset{kLoadBlockBytes}, zero).value();
  });
  EXPECT_THAT(report.violations, testing::Contains(HasSubstr("I1: lost")));
}

TEST_P(LoadTest, CounterThatIsSetIsNoticed) {
  if (test::kThreadSanitized) GTEST_SKIP() << kLieIsARace;
  const LoadReport report = run_with([](const RegionView& view) {
    std::this_thread::sleep_for(200ms);
    const std::vector<std::byte> set(8, std::byte{0});
    view.write(ByteOffset{0}, set).value();
  });
  EXPECT_THAT(report.violations, testing::Contains(HasSubstr("I10: word at 0: no order explains")));
}

TEST_P(LoadTest, LastChangeOfAWordThatIsLostIsNoticed) {
  last_lie_ = [](const RegionView& view) {
    std::vector<std::byte> bytes(8);
    view.read(ByteOffset{0}, bytes).value();
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    ASSERT_GT(word, 0U) << "nothing has changed it";
    --word;
    std::memcpy(bytes.data(), &word, sizeof word);
    view.write(ByteOffset{0}, bytes).value();
  };
  const LoadReport report = run_with([](const RegionView& /*view*/) {});
  EXPECT_THAT(report.violations, testing::Contains(HasSubstr("I10: word at 0: no order explains")));
}

TEST_P(LoadTest, ProcessThatIsHeldUpBreaksItsDeadlines) {
  if (over_rdma()) GTEST_SKIP() << "the device goes on: nothing is late";
  LoadProcess& load = start_load("t0", {"fresh=1", "deadline=100", "excuse=0"});
  std::this_thread::sleep_for(200ms);
  server().pause();
  std::this_thread::sleep_for(30ms);
  load.pause();
  std::this_thread::sleep_for(2500ms);
  load.resume();
  server().resume();
  std::this_thread::sleep_for(200ms);
  const std::optional<LoadReport> report = load.finish();
  ASSERT_TRUE(report.has_value());
  count(*report);
  EXPECT_GE(report->longest_silence_ms, 2400U) << "it was not held up";
  EXPECT_TRUE(report->looked_around) << report->look_error;
  if (over_tcp())
    EXPECT_THAT(report->violations, testing::Contains(HasSubstr("I3: ")));
  else  // an operation is over before the signal comes, but for one that it cuts in two
    EXPECT_THAT(report->violations, testing::Each(HasSubstr("I3: ")));
}

REMORA_FAULT(LoadTest);

TEST(LoadLedger, EndsThatMayNotBeAreNoticed) {
  const LoadOptions options;
  LoadLedger ledger{options};
  LoadReport report;
  const auto now = LoadLedger::Clock::now();
  ledger.ended(LoadKind::kWrite, Error{Code::kIndeterminate, "write"}, now);
  ledger.ended(LoadKind::kRead, Error{Code::kTimedOut, "read"}, now);
  ledger.fill(report);
  EXPECT_EQ(report.violations_total, 0U);
  ledger.ended(LoadKind::kRead, Error{Code::kIndeterminate, "read"}, now);
  ledger.ended(LoadKind::kAdd, Error{Code::kProvider, "fetch_add"}, now);
  ledger.ended(LoadKind::kAdd, Error{Code::kTimedOut, "fetch_add"}, now - options.deadline - 3s);
  ledger.fill(report);
  EXPECT_EQ(report.violations_total, 3U);
  EXPECT_THAT(report.violations.back(), HasSubstr("I3: a fetch_add"));
  EXPECT_EQ(report.operations, 5U);
}

/// What the engine's series say of sessions, as a lie has it.
class SessionSeries {
 public:
  void add(const std::string& name, const std::string& reason = {}) {
    const metrics::Labels labels =
        reason.empty() ? metrics::Labels{} : metrics::Labels{{"reason", reason}};
    registry->recorder().add(
        registry->counter("remora_client_sessions_" + name, "Sessions.", labels).value());
  }
  /// Violations that a load finds which was told this.
  [[nodiscard]] std::vector<std::string> found_by(
      const std::function<void(LoadLedger&)>& told) const {
    const LoadOptions options;
    LoadLedger ledger{options};
    told(ledger);
    ledger.compare(*registry);
    LoadReport report;
    ledger.fill(report);
    return report.violations;
  }

  std::shared_ptr<metrics::Registry> registry = metrics::Registry::create().value();
};

TEST(LoadLedger, SessionsThatTheMetricsKnowOtherwiseAreNoticed) {
  SessionSeries series;
  series.add("total");
  series.add("interrupted_total", "lane_broken");
  series.add("interrupted_total", "peer_gone");
  series.add("resumed_total");
  series.add("ended_total", "peer_gone");
  const auto told = [](Reason first, Reason second, Reason end) {
    return [=](LoadLedger& ledger) {
      ledger.interrupted(first);
      ledger.resumed();
      ledger.interrupted(second);
      ledger.session_ended(end);
    };
  };
  using testing::ElementsAre;
  using testing::IsEmpty;
  const auto right = told(Reason::kLaneBroken, Reason::kPeerGone, Reason::kNewMemory);
  EXPECT_THAT(series.found_by(right), IsEmpty());
  EXPECT_THAT(series.found_by(told(Reason::kSilent, Reason::kPeerGone, Reason::kLapsed)), IsEmpty())
      << "what a server says may be of a lane that broke";
  EXPECT_THAT(series.found_by(told(Reason::kLaneBroken, Reason::kLaneBroken, Reason::kLapsed)),
              ElementsAre(HasSubstr("I9: sessions interrupted by a broken lane")));
  EXPECT_THAT(series.found_by(told(Reason::kPeerGone, Reason::kPeerGone, Reason::kLapsed)),
              ElementsAre(HasSubstr("I9: sessions interrupted by a peer that went")));
  EXPECT_THAT(series.found_by([&](LoadLedger& ledger) {
    right(ledger);
    ledger.resumed();
  }),
              ElementsAre(HasSubstr("I9: sessions resumed")));
  EXPECT_THAT(series.found_by([](LoadLedger& ledger) {
    ledger.interrupted(Reason::kLaneBroken);
    ledger.resumed();
  }),
              ElementsAre(HasSubstr("I9: sessions interrupted"), HasSubstr("I9: sessions ended")));
  SessionSeries by_lanes;
  by_lanes.add("total");
  by_lanes.add("ended_total", "deadline");
  EXPECT_THAT(
      by_lanes.found_by([](LoadLedger& ledger) { ledger.session_ended(Reason::kNewMemory); }),
      ElementsAre(HasSubstr("I9: sessions ended by their server")));
  SessionSeries twice;
  twice.add("total");
  twice.add("ended_total", "closed");
  EXPECT_THAT(twice.found_by([](LoadLedger& /*ledger*/) {}), IsEmpty());
  twice.add("ended_total", "closed");
  EXPECT_THAT(twice.found_by([](LoadLedger& /*ledger*/) {}),
              ElementsAre(HasSubstr("I9: of 1 sessions that have begun 2 have ended")));
}

TEST(LoadLedger, MetricsThatSayOtherwiseAreNoticed) {
  const LoadOptions options;
  const auto registry = metrics::Registry::create().value();
  const auto counted = registry
                           ->counter("remora_client_operations_total", "Operations ended.",
                                     {{"op", "read"}, {"status", "timed_out"}})
                           .value();
  registry->recorder().add(counted, 2);
  LoadLedger ledger{options};
  const auto now = LoadLedger::Clock::now();
  for (int i = 0; i < 2; ++i) ledger.ended(LoadKind::kRead, Error{Code::kTimedOut, "read"}, now);
  ledger.compare(*registry);
  LoadReport report;
  ledger.fill(report);
  EXPECT_EQ(report.violations_total, 0U);
  registry->recorder().add(counted);  // one end counted twice
  ledger.compare(*registry);
  ledger.ended(LoadKind::kRead, Error{Code::kConnectionLost, "read"}, now);  // and one not at all
  ledger.compare(*registry);
  ledger.fill(report);
  EXPECT_EQ(report.violations_total, 3U);
}

}  // namespace
}  // namespace remora::fault
