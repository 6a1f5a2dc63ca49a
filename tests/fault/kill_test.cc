/// Processes that die in the middle of each kind of operation, and servers that come back empty.

#include <array>
#include <span>
#include <thread>

#include "fault_test.h"
#include "history.h"
#include "stamp.h"

namespace remora::fault {
namespace {

/// Each kind of operation by itself, and all of them together.
struct Mix {
  const char* name;
  std::vector<std::string> words;
};
const std::array<Mix, 5>& mixes() {
  static const std::array<Mix, 5> all{{
      {"read", {"reads=1", "writes=0", "swaps=0", "adds=0"}},
      {"write", {"reads=0", "writes=1", "swaps=0", "adds=0"}},
      {"swap", {"reads=0", "writes=0", "swaps=1", "adds=0"}},
      {"add", {"reads=0", "writes=0", "swaps=0", "adds=1"}},
      {"all", {}},
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
  const std::uint64_t count = rounds(5, 50);
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
  for (LoadProcess* load : loads) {
    const LoadReport report = finish(*load);
    // One that was between two sessions when its server went again has missed a life.
    EXPECT_GT(report.stale, 0U);
    EXPECT_LE(report.stale, count);
    EXPECT_EQ(report.lives, report.stale + 1) << "each new memory is said to be one";
    EXPECT_EQ(report.resumed, 0U);
    EXPECT_EQ(report.lost, 0U);
    // One session a life, and few attempts to get it: no storm.
    EXPECT_LE(report.open_failures, 8 * count);
  }
}

REMORA_FAULT(ServerKillTest);

class ClientKillTest : public FaultTest {
 protected:
  [[nodiscard]] FaultServerOptions server_options() const override { return {.keep = 200ms}; }

  /// What a client that was killed has left behind, judged by what it was told while it lived.
  void judge(const Region& region, const std::string& page_path) {
    LoadPage page = LoadPage::open(page_path);
    std::vector<std::byte> block(kLoadBlockBytes);
    const std::span<BlockCell> cells = page.blocks();
    std::uint64_t written = 0;
    for (std::size_t i = 1; i < cells.size(); ++i) {
      const BlockCell& cell = cells[i];
      BlockModel model{cell.session, i * kLoadBlockBytes, cell.acknowledged, cell.issued};
      written += cell.acknowledged;
      ASSERT_TRUE(ok(region.read(ByteOffset{model.offset()}, block)));
      const BlockVerdict verdict = model.check(block);
      EXPECT_EQ(verdict, BlockVerdict::kIntact)
          << "I1: " << to_string(verdict) << ": " << model.describe(block);
    }
    for (const auto& [memory, word] : page.words()) {
      AtomicRecord* const last = page.begin(memory, word, {}, 9999);
      ASSERT_NE(last, nullptr) << "more records are needed";
      const auto found = region.fetch_add(ByteOffset{word}, 0);
      ASSERT_TRUE(ok(found));
      LoadPage::end(*last, Effect::kDone, *found);
    }
    const Linearizability found = check_words(page);
    EXPECT_TRUE(found.ok()) << "I10: " << found.text;
    LoadReport done;
    done.operations = done.ok = found.operation_count + written;
    count(done);
    killed_ += found.operation_count + written;
  }
  std::uint64_t killed_ = 0;
};

TEST_P(ClientKillTest, MidTransferLeavesWhatItWasToldAndDisturbsNobody) {
  LoadProcess& neighbour =
      start_load("t0", {"fresh=1", "rate=2000", "threads=1", "queues=1", "deadline=20000"});
  const Engine engine = plain_engine();
  const Session session = engine.connect(uri({})).value();
  const std::uint64_t count = rounds(5, 50);
  for (std::uint64_t round = 0; round < count; ++round) {
    std::list<LoadProcess> clients;
    std::vector<std::string> names;
    for (const Mix& mix : mixes_over(transport())) {
      names.push_back("k" + std::to_string(round) + mix.name);
      ASSERT_TRUE(ok(session.create_region(
          {.name = names.back(), .size_bytes = kRegionBytes, .shm = over_shm()})));
      std::vector<std::string> words = mix.words;
      words.insert(words.end(), {"uri=" + uri(names.back()), "fresh=1", "depth=16", "queues=1",
                                 "threads=1", "records=500000", "rate=3000", "seed=77",
                                 "page=" + runtime_dir().path() + "/" + names.back()});
      if (over_rdma()) words.emplace_back("rate=600");
      clients.emplace_back(words);
    }
    pause_for_a_while(20ms, 150ms);
    for (LoadProcess& client : clients) client.kill();
    ASSERT_TRUE(server().soon_sessions(2)) << "I7, I8: killed clients are forgotten";
    for (const std::string& name : names) {
      const Region region = engine.open_region(uri(name), Rights::kAll).value();
      judge(region, runtime_dir().path() + "/" + name);
    }
    for (const std::string& name : names) {
      // Kept for `limits.session_keep`, in case their client comes back.
      Status removed = session.remove_region(name);
      for (int i = 0; i < 300 && !removed; ++i, std::this_thread::sleep_for(20ms))
        removed = session.remove_region(name);
      EXPECT_TRUE(ok(removed));
    }
  }
  EXPECT_GT(killed_, 0U) << "they had done nothing yet";
  const LoadReport report = finish(neighbour);
  EXPECT_EQ(report.interrupted, 0U) << "I7: of others nobody hears anything";
  EXPECT_TRUE(report.failed.empty());
}

REMORA_FAULT(ClientKillTest);

}  // namespace
}  // namespace remora::fault
