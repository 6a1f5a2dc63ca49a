/// One random fault after the other, for as long as it is told: fault --soak SECONDS.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "fault_test.h"
#include "proxy.h"

namespace remora::fault {
namespace {

using Clock = std::chrono::steady_clock;

/// Most that live allocations may grow by: the server's from the end of the first episode to that
/// of any other, and a load's from before its first session to behind its last. What is natural is
/// a fifth of it.
constexpr std::int64_t kMaxHeapGrowth = 128 << 10;

class SoakTest : public FaultTest {
 protected:
  [[nodiscard]] FaultServerOptions server_options() const override {
    return {.regions = 2, .lease = 2s, .keep = 1s, .grace = 10s};
  }

  struct Disaster {
    const char* name;
    std::function<void()> strike;
  };
  std::vector<Disaster> disasters();
  void episode(const Disaster& disaster, std::chrono::milliseconds length);
  void judge_victim();
  /// Ends it, and expects that it has let go of its memory.
  LoadReport finish_small(LoadProcess& load);
  std::int64_t compare_heap();
  std::int64_t heap() { return std::strtoll(server().ask("heap").c_str(), nullptr, 10); }

  std::optional<TcpProxy> proxy_;
  std::optional<LoadProcess> victim_;
  std::string victim_page_;
  bool victim_killed_ = false;
  std::int64_t heap_ = 0;       ///< of the server, when the first episode was over
  std::uint64_t episodes_ = 0;  ///< of the server as it is now
};

std::vector<SoakTest::Disaster> SoakTest::disasters() {
  std::vector<Disaster> all{
      {"nothing", [] {}},
      {"server killed and started again",
       [this] {
         kill_server();
         pause_for_a_while(0ms, 500ms);
         restart_server();
         episodes_ = 0;
       }},
      {"server stopped for a while",
       [this] {
         server().pause();
         pause_for_a_while(500ms, 4s);
         server().resume();
       }},
      {"a client killed",
       [this] {
         victim_->kill();
         victim_killed_ = true;
       }},
      {"region fenced",
       [this] {
         const Engine engine = plain_engine();
         for (int i = 0; i < 5; ++i) {
           EXPECT_TRUE(ok(engine.fence_region(uri("t0"), Rights::kAll)));
           pause_for_a_while(20ms, 200ms);
         }
       }},
      {"region removed and made again",
       [this] {
         EXPECT_EQ(server().ask("remove t0"), "ok");
         pause_for_a_while(0ms, 200ms);
         EXPECT_EQ(server().ask("create t0"), "ok");
       }},
      {"no descriptors left on the server",
       [this] {
         EXPECT_EQ(server().ask("limit nofile 0"), "ok");
         pause_for_a_while(100ms, 2s);
         EXPECT_EQ(server().ask("limit nofile -1"), "ok");
       }},
  };
  if (proxy_) {
    all.push_back({"connections cut", [this] {
                     for (int i = 0; i < 10; ++i) {
                       if (i % 2 == 0) proxy_->cut_one(random().next());
                       if (i % 2 != 0) proxy_->cut_all();
                       pause_for_a_while(10ms, 300ms);
                     }
                   }});
    all.push_back({"connections cut while they are made", [this] {
                     proxy_->cut_new_after(random().below(400));
                     proxy_->cut_all();
                     pause_for_a_while(100ms, 2s);
                     proxy_->cut_no_more();
                   }});
    all.push_back({"answers that come slowly", [this] {
                     proxy_->slow_down(2000);
                     pause_for_a_while(500ms, 3s);
                     proxy_->slow_down(0);
                   }});
  }
  return all;
}

void SoakTest::episode(const Disaster& disaster, std::chrono::milliseconds length) {
  const auto until = Clock::now() + length;
  ASSERT_EQ(server().ask("remove t0"), "ok");
  ASSERT_EQ(server().ask("create t0"), "ok");
  LoadProcess& load =
      start_load_by(uri("t0", proxy_ ? proxy_->port() : std::uint16_t{0}), {"fresh=1"});
  victim_page_ = runtime_dir().path() + "/victim";
  victim_killed_ = false;
  victim_.emplace(std::vector<std::string>{"uri=" + uri("t1"), "rate=2000", "first=400",
                                           "seed=" + std::to_string(random().below(1'000'000)),
                                           "deadline=2000", "page=" + victim_page_, "varied=1"});
  pause_for_a_while(length / 10, length / 3);
  disaster.strike();
  std::this_thread::sleep_until(until);
  judge_victim();
  const LoadReport report = finish_small(load);
  ASSERT_TRUE(server().soon_sessions(0));
  expect_server_back();
  const std::int64_t growth = compare_heap();
  std::string failed;
  for (const auto& [code, number] : report.failed)
    failed += (failed.empty() ? "" : ",") + code + "=" + std::to_string(number);
  std::replace(failed.begin(), failed.end(), ' ', '_');
  std::printf(
      "soak: %-40s operations=%llu ok=%llu failed{%s} longest_verdict_ms=%llu "
      "violations=%llu server_heap_growth=%lld load_heap_growth=%lld\n",
      disaster.name, static_cast<unsigned long long>(report.operations),
      static_cast<unsigned long long>(report.ok), failed.c_str(),
      static_cast<unsigned long long>(report.longest_verdict_ms),
      static_cast<unsigned long long>(report.violations_total), static_cast<long long>(growth),
      static_cast<long long>(report.heap_growth_bytes));
  std::fflush(stdout);
}

LoadReport SoakTest::finish_small(LoadProcess& load) {
  LoadReport report = finish(load);
  EXPECT_LT(report.heap_growth_bytes, kMaxHeapGrowth) << "live allocations of a load";
  return report;
}

/// By its report; where it was killed, by what it has left.
void SoakTest::judge_victim() {
  if (!victim_killed_) {
    finish_small(*victim_);
    const Linearizability found = check_words(LoadPage::open(victim_page_));
    EXPECT_TRUE(found.ok()) << "I10: " << found.text;
  } else {
    const Engine engine = plain_engine();
    const auto region = engine.open_region(uri("t1"), Rights::kAll);
    ASSERT_TRUE(ok(region));
    judge(*region, victim_page_);
  }
  victim_.reset();
}

/// By how much it has grown since the first episode: caches have filled by then, and a server that
/// was started again meanwhile has done less.
std::int64_t SoakTest::compare_heap() {
  const std::int64_t now = heap();
  ++episodes_;
  if (heap_ == 0) heap_ = now;
  EXPECT_LT(now - heap_, kMaxHeapGrowth) << "live allocations of the server";
  return now - heap_;
}

TEST_P(SoakTest, RandomFaults) {
  const char* const given = std::getenv("REMORA_FAULT_SOAK_SECONDS");
  const std::int64_t seconds = given == nullptr ? 0 : std::strtoll(given, nullptr, 10);
  if (seconds <= 0) GTEST_SKIP() << "runs by fault --soak SECONDS";
  if (over_tcp()) proxy_.emplace(server().port());
  const auto until = Clock::now() + std::chrono::seconds{seconds};
  std::vector<Disaster> all = disasters();
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random().below(i)]);
  std::uint64_t count = 0;
  while (Clock::now() < until && !HasFailure()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    // Each once before any comes again.
    const std::size_t which = count < all.size() ? count : random().below(all.size());
    ++count;
    episode(all[which], std::min<std::chrono::milliseconds>(
                            10s, std::max<std::chrono::milliseconds>(left, 3s)));
  }
  // One that has had no second episode has shown nothing of its heap yet.
  if (episodes_ < 2 && !HasFailure()) {
    episode(disasters().front(), 3s);
    ++count;
  }
  EXPECT_GE(episodes_, 2U);
  rounds(count, count);
  proxy_.reset();
}

REMORA_FAULT(SoakTest);

}  // namespace
}  // namespace remora::fault
