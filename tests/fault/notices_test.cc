/// A serving application that does not take notices: over rdma its queue pairs run out of receives,
/// and the client's are told so by RNR, for as long as that lasts.

#include <algorithm>
#include <thread>

#include "fault_test.h"

namespace remora::fault {
namespace {

using Clock = std::chrono::steady_clock;

class NoticesTest : public FaultTest {
 protected:
  [[nodiscard]] FaultServerOptions server_options() const override {
    return {.regions = 2, .notices = "t1"};
  }

  [[nodiscard]] std::chrono::milliseconds deadline() const { return over_rdma() ? 700ms : 300ms; }

  /// Notices until one of them is held up and ends by its deadline.
  struct Flood {
    std::uint64_t sent = 0;
    std::vector<bool> ok{};  ///< by number from first_ on
    std::map<std::string, std::uint64_t> failed{};
    std::uint64_t longest_ms = 0;  ///< from submission to the end of one that failed
  };
  Flood flood(const Region& region) {
    Flood seen;
    const std::vector<std::byte> word(8);
    {
      // There are receives for these, however late the server is.
      Queue queue = region.queue({.depth = kReceives, .deadline = 20s}).value();
      for (; seen.sent < kReceives; ++seen.sent)
        queue.write_notify(ByteOffset{64}, word, static_cast<std::uint32_t>(first_ + seen.sent),
                           seen.sent);
      EXPECT_TRUE(test::ok(queue.submit()));
      for (const Completion& completion : queue.wait(kReceives))
        EXPECT_TRUE(completion.ok()) << completion.error();
      seen.ok.assign(kReceives, true);
    }
    Queue queue = region.queue({.depth = 64, .deadline = deadline()}).value();
    const test::Timed timed;
    while (seen.failed.empty() && seen.sent < kMax) {
      const auto began = Clock::now();
      while (!queue.full()) {
        queue.write_notify(ByteOffset{64}, word, static_cast<std::uint32_t>(first_ + seen.sent),
                           seen.sent);
        ++seen.sent;
      }
      seen.ok.resize(seen.sent);
      EXPECT_TRUE(test::ok(queue.submit()));
      while (queue.size() != 0) {
        for (const Completion& completion : queue.wait(1)) {
          if (completion.ok()) {
            seen.ok[completion.tag()] = true;
            continue;
          }
          const Code code = completion.error().code();
          EXPECT_TRUE(code == Code::kIndeterminate || code == Code::kTimedOut ||
                      code == Code::kConnectionLost)
              << completion.error().message();
          ++seen.failed[std::string{to_string(code)}];
          const auto took =
              std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began);
          EXPECT_TRUE(timed.took_at_most(deadline() + kGrace, began)) << "I3";
          seen.longest_ms = std::max(seen.longest_ms, static_cast<std::uint64_t>(took.count()));
        }
      }
    }
    return seen;
  }
  /// What was acknowledged is handled once, and nothing twice; within 10 s.
  void expect_handled(const std::vector<bool>& ok) {
    const std::string ask =
        "notices handled " + std::to_string(first_) + ' ' + std::to_string(ok.size());
    std::uint64_t missing = 0;
    std::uint64_t repeated = 0;
    for (int i = 0; i < 100; ++i, std::this_thread::sleep_for(100ms)) {
      const std::string digits = server().ask(ask);
      ASSERT_EQ(digits.size(), ok.size());
      missing = repeated = 0;
      for (std::size_t notice = 0; notice < ok.size(); ++notice) {
        missing += ok[notice] && digits[notice] == '0' ? 1U : 0U;
        repeated += digits[notice] > '1' ? 1U : 0U;
      }
      if (missing == 0) break;
    }
    EXPECT_EQ(missing, 0U) << "I1: notices that were acknowledged were not handled";
    EXPECT_EQ(repeated, 0U) << "I2: notices were handled more than once";
  }

  /// Of a session, at the least.
  static constexpr std::uint64_t kReceives = 32;
  /// Far more than the server keeps, in its queue pairs and before its application.
  static constexpr std::uint64_t kMax = 4096;
  std::uint64_t first_ = 0;  ///< number of the round's first notice
};

TEST_P(NoticesTest, NotTakenHoldUpTheirClientUntilItsDeadlines) {
  LoadProcess& neighbour = start_load("t0", {"fresh=1", "rate=200", "deadline=20000"});
  EngineOptions options;
  options.control_deadline = 10s;
  const Engine engine = Engine::open(options).value();
  const Region region = engine.open_region(uri("t1"), Rights::kAll).value();
  const std::uint64_t count_of_rounds = over_shm() ? rounds(2, 20) : exactly_rounds(20, 200);
  LoadReport all;
  const std::vector<std::byte> word(8);
  for (std::uint64_t round = 0; round < count_of_rounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    ASSERT_EQ(server().ask("notices hold"), "ok");
    Flood seen = flood(region);
    const auto acknowledged =
        static_cast<std::uint64_t>(std::count(seen.ok.begin(), seen.ok.end(), true));
    all.operations += seen.sent + 1;
    all.ok += acknowledged + 1;
    for (const auto& [code, count_of_code] : seen.failed) all.failed[code] += count_of_code;
    all.longest_verdict_ms = std::max(all.longest_verdict_ms, seen.longest_ms);
    EXPECT_FALSE(seen.failed.empty()) << "nothing was held up: the receives did not run out";
    ASSERT_EQ(server().ask("notices go"), "ok");
    // It goes on by itself.
    EXPECT_TRUE(ok(region.settled(20s)));
    EXPECT_TRUE(ok(region.write_notify(ByteOffset{64}, word,
                                       static_cast<std::uint32_t>(first_ + seen.sent), 20s)));
    seen.ok.push_back(true);
    expect_handled(seen.ok);
    first_ += seen.ok.size();
  }
  count(all);
  EXPECT_TRUE(finish(neighbour).failed.empty()) << "I7";
}

REMORA_FAULT(NoticesTest);

}  // namespace
}  // namespace remora::fault
