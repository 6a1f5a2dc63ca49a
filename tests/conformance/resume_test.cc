/// Sessions that clients resume after they have lost their lanes or the server, or were paused.
/// Acknowledged operations have taken effect, uncertain ones end with kIndeterminate, and no
/// operation of an old lane takes effect afterwards.

#include <atomic>
#include <chrono>
#include <sstream>
#include <thread>

#include "conformance_test.h"
#include "support/child.h"

namespace remora::test {
namespace {

using Clock = std::chrono::steady_clock;

/// The counts that the child "endure" reports.
struct Endured {
  std::uint64_t sure = 0;
  std::uint64_t uncertain = 0;
  std::uint64_t lost = 0;
  std::uint64_t resumed = 0;
  std::string ended;

  static Endured from(const std::string& line) {
    Endured seen;
    std::istringstream words{line};
    std::string word;
    words >> word >> seen.sure >> word >> seen.uncertain >> word >> seen.lost >> word >>
        seen.resumed >> word;
    std::getline(words >> std::ws, seen.ended);
    return seen;
  }
};

/// A client that is paused for longer than its lease.
class ClientPauseTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool needs_own_server() const override { return true; }
  void configure(config::ServerConfig& config) const override {
    config.limits.session_lease = kLease;
    config.limits.session_keep = 8s;
    config.limits.revoke_grace = 500ms;
  }
  /// Long enough for clients that are not paused, on a busy machine.
  static constexpr std::chrono::seconds kLease{2};
  static constexpr const char* kNeverLapses =
      "the session of a client that maps memory does not lapse";
  Child endure(const std::string& region, const std::string& how = "tell=no") {
    Child child{"endure", {"uri=" + uri(region), "offset=0", how}};
    EXPECT_EQ(child.read_line(), "ready");
    return child;
  }
  /// Waits until no session has the region open: the server keeps a lost session for a time.
  [[nodiscard]] bool soon_closed(const std::string& region) {
    return eventually([&] { return session().stat(region).value().open_count == 0; });
  }
  [[nodiscard]] bool soon_sessions(std::uint64_t wanted) {
    return eventually([&] { return server().status().sessions == wanted; });
  }
};

TEST_P(ClientPauseTest, OverSharedMemoryNothingLapsesAndNothingCanBeFenced) {
  if (!over_shm()) GTEST_SKIP() << "about shm only";
  const RegionInfo made = create();
  Child child = endure(made.name);
  child.pause();
  std::this_thread::sleep_for(kLease + 2s);
  EXPECT_EQ(server().status().sessions, 2U) << "its mapping is still there";
  EXPECT_TRUE(fails_with(engine().fence_region(uri(made.name), Rights::kAll), Code::kBusy));
  child.send_signal(SIGCONT);
  child.write_line("enough");
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(soon_closed(made.name));
}

TEST_P(ClientPauseTest, GoesOnWithTheSameGrantAndCountsRight) {
  if (over_shm()) GTEST_SKIP() << kNeverLapses;
  const RegionInfo made = create();
  Child child = endure(made.name, "tell=resumed");
  {
    const Region seen = open(made.name);
    EXPECT_TRUE(eventually([&] { return seen.fetch_add(ByteOffset{0}, 0).value() != 0; }));
  }
  EXPECT_TRUE(eventually([&] { return session().stat(made.name).value().open_count == 1; }));
  for (int round = 0; round < 2; ++round) {
    std::this_thread::sleep_for(200ms);
    child.pause();
    EXPECT_TRUE(soon_sessions(1)) << "its lease never lapsed";
    EXPECT_EQ(session().stat(made.name).value().open_count, 1U) << "kept for it to come back";
    child.send_signal(SIGCONT);
    EXPECT_EQ(child.read_line(), "resumed") << "it did not come back";
    EXPECT_TRUE(soon_sessions(2));
  }
  std::this_thread::sleep_for(200ms);
  child.write_line("enough");
  // On a busy machine the session may have lapsed once more.
  std::string line = child.read_line().value_or("");
  while (line == "resumed") line = child.read_line().value_or("");
  const Endured seen = Endured::from(line);
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(seen.ended, "no");
  EXPECT_GE(seen.resumed, 2U);
  EXPECT_GT(seen.sure, 0U);
  // Each acknowledged operation has taken effect once, and an uncertain one at most once.
  const std::uint64_t count = open(made.name).fetch_add(ByteOffset{0}, 0).value();
  EXPECT_GE(count, seen.sure);
  EXPECT_LE(count, seen.sure + seen.uncertain);
  EXPECT_TRUE(soon_sessions(1));
}

TEST_P(ClientPauseTest, ResumptionDoesNotDisturbOtherClients) {
  const RegionInfo made = create();
  Child child = endure(made.name);
  child.pause();
  const Region region = open(made.name);
  const auto until = Clock::now() + kLease + 1s;
  std::uint64_t count = 0;
  while (Clock::now() < until) ASSERT_EQ(region.fetch_add(ByteOffset{64}, 1).value(), count++);
  child.send_signal(SIGCONT);
  EXPECT_TRUE(soon_sessions(2));
  for (int i = 0; i < 100; ++i) ASSERT_EQ(region.fetch_add(ByteOffset{64}, 1).value(), count++);
  EXPECT_TRUE(region.connected());
  child.write_line("enough");
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(soon_sessions(1));
  EXPECT_TRUE(eventually([&] { return session().stat(made.name).value().open_count == 1; }));
}

TEST_P(ClientPauseTest, OneThatIsKilledIsGivenUpWhenItsTimeIsOver) {
  const RegionInfo made = create();
  Child child = endure(made.name);
  child.kill();
  EXPECT_TRUE(soon_sessions(1));
  EXPECT_EQ(session().stat(made.name).value().open_count, 1U);
  for (Patience patience{20s};
       session().stat(made.name).value().open_count != 0 && !patience.over();)
    std::this_thread::sleep_for(50ms);
  EXPECT_EQ(session().stat(made.name).value().open_count, 0U);
}

REMORA_CONFORMANCE(ClientPauseTest);

/// A client that is paused until the server has released its session.
class LapseTest : public ClientPauseTest {
 protected:
  void configure(config::ServerConfig& config) const override {
    config.limits.session_lease = kLease;
    config.limits.session_keep = 500ms;
  }
};

TEST_P(LapseTest, EndsForGoodAndIsTold) {
  if (over_shm()) GTEST_SKIP() << kNeverLapses;
  const RegionInfo made = create();
  Child child = endure(made.name);
  child.pause();
  for (Patience patience{20s};
       session().stat(made.name).value().open_count != 0 && !patience.over();)
    std::this_thread::sleep_for(50ms);
  child.send_signal(SIGCONT);
  const Endured seen = Endured::from(child.read_line().value_or(""));
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(seen.ended, to_string(Reason::kLapsed));
  EXPECT_EQ(seen.resumed, 0U);
  EXPECT_TRUE(soon_sessions(1));
}

REMORA_CONFORMANCE(LapseTest);

/// A server that stops, and waits until its clients have left.
class DrainEventTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool needs_own_server() const override { return true; }
  void configure(config::ServerConfig& config) const override { config.limits.drain_timeout = 20s; }
  void configure_engine(EngineOptions& options) const override {
    options.handlers.on_drain = [this](const SessionEvent& event) {
      EXPECT_EQ(event.transport, transport());
      EXPECT_EQ(event.reason, Reason::kDraining);
      ++told_;
    };
  }
  mutable std::atomic<int> told_{0};
};

TEST_P(DrainEventTest, EachSessionGetsItAndGoesOnUntilItsClientLeaves) {
  const Timed timed;
  std::thread stopping;
  {
    const Region region = make_region();
    stopping = std::thread{[this] { server().stop(); }};
    EXPECT_TRUE(eventually([&] { return told_ != 0; }));
    EXPECT_EQ(told_, 1);
    const std::vector<std::byte> bytes = noise(4096, 7);
    EXPECT_TRUE(ok(region.write(ByteOffset{0}, bytes))) << "the server still serves";
    std::vector<std::byte> into(4096);
    EXPECT_TRUE(ok(region.read(ByteOffset{0}, into)));
    EXPECT_TRUE(same_bytes(into, bytes));
    EXPECT_TRUE(ok(session().stat(region.info().name)));
  }
  end_session();
  stopping.join();
  EXPECT_TRUE(timed.took_at_most(15s)) << "no client was left";
  EXPECT_EQ(told_, 1);
}

REMORA_CONFORMANCE(DrainEventTest);

/// A server that stops with the default drain_timeout.
class PlannedStopTest : public DrainEventTest {
 protected:
  void configure(config::ServerConfig& config) const override {
    config.limits.drain_timeout = decltype(config.limits){}.drain_timeout;
  }
};

TEST_P(PlannedStopTest, ClientThatLeavesWhenItIsToldLosesNothing) {
  std::atomic<bool> left{false};
  std::thread stopping;
  {
    const Region region = make_region();
    stopping = std::thread{[&] {
      const Timed timed;
      server().stop();
      EXPECT_TRUE(left) << "it did not wait";
      EXPECT_TRUE(timed.took_at_most(15s));
    }};
    std::uint64_t done = 0;
    for (Patience patience; told_ == 0 && !patience.over(); ++done) {
      const auto before = region.fetch_add(ByteOffset{0}, 1);
      ASSERT_TRUE(ok(before));
      ASSERT_EQ(*before, done);
    }
    EXPECT_EQ(told_, 1);
    EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), done);
    left = true;
  }
  end_session();
  stopping.join();
}

REMORA_CONFORMANCE(PlannedStopTest);

/// A server that stops, and does not wait for its clients.
class PromptStopTest : public DrainEventTest {
 protected:
  void configure(config::ServerConfig& /*config*/) const override {}
  void configure_engine(EngineOptions& options) const override {
    DrainEventTest::configure_engine(options);
    options.handlers.on_interrupted = [this](const SessionEvent& event) {
      EXPECT_EQ(told_, 1) << "no drain event came before";
      why_ = event.reason;
    };
  }
  mutable std::atomic<Reason> why_{Reason::kNone};
};

TEST_P(PromptStopTest, SessionsAreToldFirstAllTheSame) {
  const Region region = make_region();
  ASSERT_TRUE(ok(region.write_zeroes(ByteOffset{0}, 64)));
  server().stop();
  EXPECT_TRUE(eventually([&] { return why_ != Reason::kNone; }));
  EXPECT_EQ(told_, 1);
  EXPECT_EQ(why_, Reason::kDraining) << to_string(why_);
}

TEST_P(PromptStopTest, SessionsAtWorkAreInterruptedForTheSameReason) {
  const Region region = make_region();
  // Requests and operations under way fail for the same reason as the session, whichever of them
  // notices the end first.
  const auto expect_why = [](const auto& ended) {
    EXPECT_TRUE(ended || ended.error().reason() == Reason::kDraining) << ended.error();
    return ended.ok();
  };
  std::thread asking{[&] {
    while (why_ == Reason::kNone && expect_why(session().usage())) {
    }
  }};
  std::thread working{[&] {
    while (why_ == Reason::kNone && expect_why(region.fetch_add(ByteOffset{0}, 1, 1s))) {
    }
  }};
  EXPECT_TRUE(eventually([&] { return server().status().sessions == 1; }));
  server().stop();
  EXPECT_TRUE(eventually([&] { return why_ != Reason::kNone; }));
  EXPECT_EQ(told_, 1);
  EXPECT_EQ(why_, Reason::kDraining) << to_string(why_);
  asking.join();
  working.join();
}

REMORA_CONFORMANCE(PromptStopTest);

}  // namespace
}  // namespace remora::test
