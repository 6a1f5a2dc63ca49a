/// Processes that die in the middle of each kind of operation, and servers that come back empty.

#include <array>
#include <map>
#include <span>
#include <thread>

#include "fault_test.h"
#include "support/callgrind.h"

namespace remora::fault {
namespace {

/// Each kind of operation by itself, writes with notices and zeroes among them, and all together.
struct Mix {
  std::string name;
  std::vector<std::string> words;
  std::vector<LoadKind> kinds;  ///< of operations that it makes
};
const std::array<Mix, 5>& mixes() {
  using enum LoadKind;
  static const std::array<Mix, 5> all{{
      {"read", {"reads=1", "writes=0", "swaps=0", "adds=0"}, {kRead}},
      {"write",
       {"reads=0", "writes=1", "swaps=0", "adds=0", "varied=1"},
       {kWrite, kNotify, kZeroes}},
      {"swap", {"reads=0", "writes=0", "swaps=1", "adds=0"}, {kSwap}},
      {"add", {"reads=0", "writes=0", "swaps=0", "adds=1"}, {kAdd}},
      {"all", {"varied=1"}, {kLoadKinds.begin(), kLoadKinds.end()}},
  }};
  return all;
}

/// In an emulator six processes at once take minutes: there the last two.
std::span<const Mix> mixes_over(TransportKind transport) {
  const std::span<const Mix> all{mixes()};
  return transport == TransportKind::kRdma ? all.last(2) : all;
}

class ServerKillTest : public FaultTest {
 protected:
  [[nodiscard]] FaultServerOptions server_options() const override {
    return {.regions = static_cast<std::uint32_t>(mixes().size())};
  }
};

/// Also: a restarted server on the same address and port is met by its new memory id.
TEST_P(ServerKillTest, MidTransferAndStartedAgain) {
  std::vector<LoadProcess*> loads;
  const std::span<const Mix> mixes = mixes_over(transport());
  for (std::size_t i = 0; i < mixes.size(); ++i) {
    std::vector<std::string> words = mixes[i].words;
    words.insert(words.end(), {"fresh=1", "rate=2000", "threads=1", "queues=1"});
    loads.push_back(&start_load("t" + std::to_string(i), words));
  }
  const std::uint64_t count = exactly_rounds(5, 50);
  for (std::uint64_t round = 0; round < count; ++round) {
    pause_for_a_while(50ms, 250ms);
    kill_server();
    pause_for_a_while(0ms, 100ms);
    restart_server();
    ASSERT_TRUE(server().soon_sessions(loads.size())) << "not all came back: " << round;
  }
  // A session that is told of the new memory counts for a moment: a grant is had by one that works.
  const std::string wanted = "grants " + std::to_string(loads.size());
  bool at_work = false;
  for (int i = 0; i < 3000 && !at_work; ++i, std::this_thread::sleep_for(10ms))
    at_work = server().ask("status").find(wanted) != std::string::npos;
  EXPECT_TRUE(at_work);
  pause_for_a_while(100ms, 200ms);
  std::uint64_t indeterminate = 0;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    SCOPED_TRACE(mixes[i].name);
    const LoadReport report = finish(*loads[i]);
    std::uint64_t failed = 0;
    for (const auto& [code, number] : report.failed) failed += number;
    EXPECT_GE(failed, report.stale) << "no load noticed that its server went";
    if (const auto found = report.failed.find("indeterminate"); found != report.failed.end())
      indeterminate += found->second;
    // One that was between two sessions when its server went again has missed a life.
    EXPECT_GT(report.stale, 0U);
    EXPECT_LE(report.stale, count);
    EXPECT_EQ(report.lives, report.stale + 1) << "each new memory is said to be one";
    EXPECT_EQ(report.resumed, 0U);
    EXPECT_EQ(report.lost, 0U);
    // One session a life, and few attempts to get it: no storm.
    EXPECT_LE(report.open_failures, 8 * count);
  }
  if (over_tcp()) {
    EXPECT_GT(indeterminate, 0U) << "no write and no atomic was in flight when a server was killed";
  }
}

REMORA_FAULT(ServerKillTest);

class ClientKillTest : public FaultTest {
 protected:
  [[nodiscard]] FaultServerOptions server_options() const override { return {.keep = 200ms}; }

  /// Each mix had done each of its kinds of operations, and was at them when it was killed.
  void expect_at_work(std::span<const Mix> mixes, const std::vector<Killed>& killed) const {
    Killed all;
    for (std::size_t i = 0; i < mixes.size(); ++i) {
      all += killed[i];
      for (const LoadKind kind : mixes[i].kinds)
        EXPECT_GT(killed[i].ended.at(kind), 0U) << mixes[i].name << ": no " << to_string(kind);
    }
    std::printf("killed:");
    for (const LoadKind kind : kLoadKinds)
      std::printf(" %s=%llu/%llu", to_string(kind),
                  static_cast<unsigned long long>(all.ended[kind]),
                  static_cast<unsigned long long>(all.in_flight[kind]));
    std::printf(" uncertain=%llu\n", static_cast<unsigned long long>(all.uncertain));
    if (!over_tcp()) return;  // over shm an operation is over before a signal finds it
    for (const LoadKind kind : kLoadKinds)
      EXPECT_GT(all.in_flight[kind], 0U) << "no " << to_string(kind) << " was in flight";
    EXPECT_GT(all.uncertain, 0U) << "no write and no atomic was cut off";
  }
};

TEST_P(ClientKillTest, MidTransferLeavesWhatItWasToldAndDisturbsNoOther) {
  // It works all the time, most of which the rounds wait: with a sanitizer it would keep a
  // processor busy.
  LoadProcess& neighbour = start_load("t0", {"fresh=1", test::kSanitized ? "rate=300" : "rate=2000",
                                             "threads=1", "queues=1", "deadline=20000"});
  const Engine engine = plain_engine();
  const Session session = engine.connect(uri({})).value();
  const std::span<const Mix> mixes = mixes_over(transport());
  std::vector<Killed> killed(mixes.size());
  const std::uint64_t count = exactly_rounds(5, 50);
  for (std::uint64_t round = 0; round < count; ++round) {
    std::list<LoadProcess> clients;
    std::vector<std::string> names;
    for (const Mix& mix : mixes) {
      names.push_back("k" + std::to_string(round) + mix.name);
      ASSERT_TRUE(ok(session.create_region(
          {.name = names.back(), .size_bytes = kRegionBytes, .shm = over_shm()})));
      std::vector<std::string> words = mix.words;
      words.insert(words.end(), {"uri=" + uri(names.back()), "fresh=1", "depth=16", "queues=1",
                                 "threads=1", "records=500000", "seed=77",
                                 // Over tcp fast enough to have something in flight about always.
                                 over_tcp() ? "rate=25000" : "rate=3000",
                                 "page=" + runtime_dir().path() + "/" + names.back()});
      if (over_rdma()) words.emplace_back("rate=600");
      clients.emplace_back(words);
    }
    pause_for_a_while(20ms, 150ms);
    for (LoadProcess& client : clients) client.kill();
    ASSERT_TRUE(server().soon_sessions(2)) << "I7, I8: killed clients are forgotten";
    for (std::size_t i = 0; i < names.size(); ++i) {
      SCOPED_TRACE(names[i]);
      const Region region = engine.open_region(uri(names[i]), Rights::kAll).value();
      killed[i] += judge(region, runtime_dir().path() + "/" + names[i]);
    }
    for (const std::string& name : names) {
      // Kept for `limits.session_keep`, in case their client comes back.
      Status removed = session.remove_region(name);
      for (int i = 0; i < 1500 && !removed; ++i, std::this_thread::sleep_for(20ms))
        removed = session.remove_region(name);
      EXPECT_TRUE(ok(removed));
    }
  }
  expect_at_work(mixes, killed);
  const LoadReport report = finish(neighbour);
  EXPECT_EQ(report.interrupted, 0U) << "I7: a client is not told of others";
  EXPECT_TRUE(report.failed.empty());
}

REMORA_FAULT(ClientKillTest);

}  // namespace
}  // namespace remora::fault
