/// An engine with testing::FaultTransport and a real server. The region holds all acknowledged
/// writes; each operation ends once; one that may have taken effect ends with kIndeterminate; and
/// the counts of FaultTransport say what happened.

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include <remora/testing/fault_transport.h>

#include "conformance_test.h"

namespace remora::test {
namespace {

using remora::testing::FaultCounts;
using remora::testing::FaultTransport;
using remora::testing::Landing;

constexpr std::uint64_t kSeed = 20'26;

/// The content of a block: the number of its writer, in every word.
using StampBytes = std::array<std::byte, 256>;
StampBytes stamp_of(std::uint64_t number) {
  std::array<std::uint64_t, 32> words{};
  words.fill(number);
  return std::bit_cast<StampBytes>(words);
}

class FaultTransportTest : public ConformanceTest {
 protected:
  void configure_engine(EngineOptions& options) const override {
    if (over_shm()) return;
    options.faults = faults_.hook();
    options.handlers.on_interrupted = [this](const SessionEvent& event) {
      ++interrupted_;
      reason_ = event.reason;
    };
    options.handlers.on_resumed = [this](const SessionEvent&) { ++resumed_; };
  }
  static Status put(const Region& region, ByteOffset at, std::uint64_t number,
                    std::chrono::nanoseconds deadline = {}) {
    const StampBytes bytes = stamp_of(number);
    return region.write(at, bytes, deadline);
  }
  /// The region's word at `at`.
  static std::uint64_t word_at(const Region& region, std::uint64_t at) {
    std::array<std::byte, 8> bytes{};
    EXPECT_TRUE(ok(region.read(ByteOffset{at}, bytes)));
    return std::bit_cast<std::uint64_t>(bytes);
  }
  template <typename Condition>
  static bool soon(Condition condition) {
    return eventually(condition);
  }

  const FaultTransport faults_ = FaultTransport::create({.seed = kSeed}).value();
  mutable std::atomic<int> interrupted_{0};
  mutable std::atomic<int> resumed_{0};
  mutable std::atomic<Reason> reason_{Reason::kNone};
};

constexpr const char* kNoLanes = "over shm there are no lanes to lose";

TEST_P(FaultTransportTest, OverSharedMemoryItIsRefusedAndAnotherTransportIsTaken) {
  if (!over_shm()) GTEST_SKIP() << "about shm only";
  EngineOptions options = patient_options();
  options.faults = faults_.hook();
  const Engine with_faults = Engine::open(options).value();
  EXPECT_TRUE(fails_with(with_faults.connect(uri()), Code::kUnsupported));
}

TEST_P(FaultTransportTest, AWriteThatLandedAndOneThatDidNotAreBothUncertain) {
  if (over_shm()) GTEST_SKIP() << kNoLanes;
  const Region region = make_region();
  for (const Landing landing : {Landing::kLanded, Landing::kLost}) {
    const std::uint64_t number = landing == Landing::kLanded ? 11 : 22;
    const std::uint64_t at = number * 256;
    faults_.lose_next_lane(landing);
    EXPECT_TRUE(fails_with(put(region, ByteOffset{at}, number), Code::kIndeterminate));
    EXPECT_TRUE(ok(session().settled(20s)));
    EXPECT_EQ(word_at(region, at), landing == Landing::kLanded ? number : 0);
    faults_.lose_next_lane(landing);
    EXPECT_TRUE(fails_with(region.fetch_add(ByteOffset{at + 8}, 100), Code::kIndeterminate));
    EXPECT_EQ(word_at(region, at + 8), landing == Landing::kLanded ? number + 100 : 0);
  }
  EXPECT_EQ(faults_.counts().lanes_lost, 4U);
  EXPECT_EQ(faults_.counts().requests_landed, 2U);
  EXPECT_EQ(faults_.counts().requests_unsent, 2U);
  EXPECT_EQ(interrupted_, 4);
  // The server may hang up before the lane reports that it is broken.
  EXPECT_TRUE(reason_ == Reason::kLaneBroken || reason_ == Reason::kPeerGone);
}

TEST_P(FaultTransportTest, AReadGoesAgainOnTheLaneThatFollows) {
  if (over_shm()) GTEST_SKIP() << kNoLanes;
  const Region region = make_region();
  ASSERT_TRUE(ok(put(region, ByteOffset{0}, 5)));
  SlotPool slots = engine().allocate_slots(1, 256).value();
  // Over rdma, the client repeats a read on another lane only if its memory is registered.
  Slot slot = slots.take();
  const std::uint64_t lanes = faults_.counts().lanes;
  for (const Landing landing : {Landing::kLanded, Landing::kLost}) {
    std::fill(slot.bytes().begin(), slot.bytes().end(), std::byte{0});
    faults_.lose_next_lane(landing);
    ASSERT_TRUE(ok(region.read(ByteOffset{0}, slot)));
    EXPECT_TRUE(std::ranges::equal(slot.bytes(), stamp_of(5)));
  }
  EXPECT_EQ(faults_.counts().lanes_lost, 2U);
  EXPECT_EQ(faults_.counts().lanes, lanes + 2);
}

TEST_P(FaultTransportTest, ALostConnectionIsResumedWhenItIsLetThroughAgain) {
  if (over_shm()) GTEST_SKIP() << kNoLanes;
  const Region region = make_region();
  const std::uint64_t connects = faults_.counts().connects;
  faults_.refuse_connects(3);
  faults_.lose_next_connection(Landing::kLanded);
  EXPECT_TRUE(fails_with(put(region, ByteOffset{0}, 3), Code::kIndeterminate));
  EXPECT_EQ(word_at(region, 0), 3U);
  EXPECT_EQ(reason_, Reason::kPeerGone);
  EXPECT_EQ(faults_.counts().connects_refused, 3U);
  faults_.lose_connections();
  EXPECT_TRUE(soon([&] { return resumed_ == 2; }));
  EXPECT_EQ(word_at(region, 0), 3U);
  EXPECT_EQ(faults_.counts().connections_lost, 2U);
  EXPECT_EQ(faults_.counts().connects, connects + 2);
}

TEST_P(FaultTransportTest, RefusedConnectIsRetriedForAsLongAsConnectForSays) {
  if (over_shm()) GTEST_SKIP() << kNoLanes;
  const RegionInfo made = create();
  const auto open_within = [&](std::chrono::nanoseconds time, const std::string& name) {
    EngineOptions options = patient_options();
    options.faults = faults_.hook();
    options.connect_for = time;
    return Engine::open(options).value().open_region(uri(name), Rights::kAll);
  };
  const auto refused = [&] { return faults_.counts().connects_refused; };
  faults_.refuse_connects(1);
  EXPECT_TRUE(fails_with(open_within(0s, made.name), Code::kConnectionRefused)) << "once";
  faults_.refuse_connects(3);
  EXPECT_TRUE(ok(open_within(20s, made.name)));
  EXPECT_EQ(refused(), 4U);
  // The client retries until connect_for is over, with pauses: nine of the shortest are longer.
  faults_.refuse_connects_for(std::chrono::hours{1});
  // On a busy host a client may retry too rarely, so the test makes up to ten attempts.
  std::uint64_t tried = 0;
  for (int attempt = 0; attempt < 10 && tried < 2; ++attempt) {
    const std::uint64_t before = refused();
    EXPECT_TRUE(fails_with(open_within(700ms, made.name), Code::kConnectionRefused));
    tried = refused() - before;
    EXPECT_LE(tried, 9U);
  }
  EXPECT_GE(tried, 2U);
  faults_.refuse_connects_for(0s);
  // The client does not retry after an error that is final.
  EXPECT_TRUE(fails_with(open_within(std::chrono::hours{1}, "unknown"), Code::kUnknownRegion));
}

TEST_P(FaultTransportTest, NameThatIsNotThereYetIsWaitedFor) {
  EngineOptions options = patient_options();
  options.connect_for = 300ms;
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(fails_with(
      Engine::open(options).value().open_region("remora://no-such-host.invalid/t0", Rights::kRead),
      Code::kNotFound));
  EXPECT_GE(std::chrono::steady_clock::now() - began, options.connect_for);
}

TEST_P(FaultTransportTest, AFenceIsAskedForOnceHoweverLongOneMayConnect) {
  if (over_shm()) GTEST_SKIP() << kNoLanes;
  const RegionInfo made = create();
  EngineOptions options = patient_options();
  options.faults = faults_.hook();
  options.connect_for = std::chrono::hours{1};
  options.control_deadline = 4s;
  const Engine engine = Engine::open(options).value();
  const Region held = engine.open_region(uri(made.name), Rights::kAll).value();
  faults_.hold_answers();
  const Timed timed;
  EXPECT_TRUE(fails_with(engine.fence_region(uri(made.name), Rights::kAll), Code::kTimedOut));
  EXPECT_TRUE(timed.took_at_most(options.control_deadline + kGrace));
  faults_.release_answers();
}

TEST_P(FaultTransportTest, WhatIsHeldRunsIntoItsDeadline) {
  if (over_shm()) GTEST_SKIP() << kNoLanes;
  const Region region = make_region();
  faults_.hold_completions();
  std::array<std::byte, 256> into{};
  const Timed timed;
  EXPECT_TRUE(fails_with(put(region, ByteOffset{0}, 9, 1s), Code::kIndeterminate));
  EXPECT_TRUE(fails_with(region.read(ByteOffset{0}, into, 1s), Code::kTimedOut));
  EXPECT_TRUE(timed.took_at_most(2s + 2 * kGrace));
  EXPECT_GE(faults_.counts().completions_held, 1U);
  faults_.release_completions();
  EXPECT_EQ(word_at(region, 0), 9U) << "it had landed";
}

TEST_P(FaultTransportTest, AServerThatIsSilentAnswersWhenItIsReleased) {
  if (over_shm()) GTEST_SKIP() << kNoLanes;
  const RegionInfo made = create();
  faults_.hold_answers();
  auto asked = std::async(std::launch::async, [&] { return session().stat(made.name); });
  EXPECT_EQ(asked.wait_for(200ms), std::future_status::timeout);
  faults_.release_answers();
  EXPECT_TRUE(ok(asked.get()));
  EXPECT_GE(faults_.counts().answers_held, 1U);
}

TEST_P(FaultTransportTest, DelaysAreAsLongAsTheyAreSaidToBe) {
  if (over_shm()) GTEST_SKIP() << kNoLanes;
  const Region region = make_region();
  faults_.delay_next(1, 150ms);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(ok(put(region, ByteOffset{0}, 1)));
  EXPECT_GE(std::chrono::steady_clock::now() - began, 150ms);
  EXPECT_EQ(faults_.counts().completions_delayed, 1U);
}

/// One operation at a time, so that the test knows of each whether it has taken effect.
TEST_P(FaultTransportTest, CountsAreWhatWasAcknowledgedAndWhatLandedUnheard) {
  if (over_shm()) GTEST_SKIP() << kNoLanes;
  const Region region = make_region();
  std::uint64_t sure = 0;
  std::uint64_t uncertain = 0;
  const std::size_t count = steps(2000);
  const double twenty = 20 / static_cast<double>(count);  // 1 % of 2,000
  ASSERT_TRUE(ok(faults_.set_rates({.lose_lane = twenty, .delay = 0.1, .max_delay = 300us})));
  for (std::size_t i = 0; i < count; ++i) {
    const auto added = region.fetch_add(ByteOffset{0}, 1);
    if (!added) {
      ASSERT_TRUE(fails_with(added, Code::kIndeterminate));
    }
    ++(added ? sure : uncertain);
  }
  ASSERT_TRUE(ok(faults_.set_rates({})));
  ASSERT_TRUE(ok(session().settled(20s)));
  const FaultCounts counts = faults_.counts();
  EXPECT_EQ(sure + uncertain, count);
  EXPECT_EQ(uncertain, counts.lanes_lost);
  EXPECT_GT(uncertain, 0U);
  EXPECT_EQ(word_at(region, 0), sure + counts.requests_landed);
  EXPECT_EQ(counts.requests_landed + counts.requests_unsent, uncertain);
  EXPECT_GT(counts.completions_delayed, 0U);
  RecordProperty("uncertain", static_cast<int>(uncertain));
}

TEST_P(FaultTransportTest, TheSameSeedAndTheSameCallsMeetTheSameFaults) {
  if (over_shm()) GTEST_SKIP() << kNoLanes;
  const Region region = make_region();
  const auto outcomes = [&](std::uint64_t seed) {
    const auto faults =
        FaultTransport::create({.seed = seed, .rates = {.lose_lane = 0.05}}).value();
    EngineOptions options = patient_options();
    options.faults = faults.hook();
    const Engine again = Engine::open(options).value();
    const Region same = again.open_region(uri(region.info().name), Rights::kAll).value();
    const std::uint64_t before = word_at(region, 0);
    std::vector<bool> found;
    found.reserve(150);
    for (int i = 0; i < 150; ++i) found.push_back(same.fetch_add(ByteOffset{0}, 1).ok());
    return std::pair{found, word_at(region, 0) - before};
  };
  const auto first = outcomes(3);
  EXPECT_NE(std::count(first.first.begin(), first.first.end(), false), 0);
  EXPECT_EQ(outcomes(3), first);
  EXPECT_NE(outcomes(4), first);
}

/// A queue with many operations, while lanes are lost and completions are late and out of order. A
/// block holds the last acknowledged write, or an uncertain one that followed it.
TEST_P(FaultTransportTest, WhatIsAcknowledgedIsThereThroughAllFaultsAtOnce) {
  if (over_shm()) GTEST_SKIP() << kNoLanes;
  constexpr std::size_t kBlocks = 128;
  constexpr std::size_t kDepth = 16;
  const Region region = make_region();
  struct Block {
    std::uint64_t sure = 0;
    std::vector<std::uint64_t> uncertain;
  };
  std::vector<Block> blocks(kBlocks);
  const std::size_t count = steps(2000);
  std::vector<int> ended(count + 1, 0);
  std::vector<StampBytes> bytes(kDepth);
  const double ten = 10 / static_cast<double>(count);
  ASSERT_TRUE(ok(faults_.set_rates({.lose_lane = 1.5 * ten,
                                    .lose_connection = ten / 2,
                                    .delay = 0.05,
                                    .max_delay = 500us,
                                    .reorder = 0.2})));
  std::size_t uncertain = 0;
  {
    Queue queue = region.queue({.depth = kDepth}).value();
    for (std::uint64_t next = 1; next <= count;) {
      std::size_t left = 0;
      for (StampBytes& stamp : bytes) {
        if (next > count) break;
        stamp = stamp_of(next);
        queue.write(ByteOffset{next % kBlocks * 512}, stamp, next);
        ++next;
        ++left;
      }
      ASSERT_TRUE(ok(queue.submit()));
      while (left != 0) {
        for (const Completion& each : queue.wait(1)) {
          --left;
          ++ended.at(each.tag());
          Block& block = blocks[each.tag() % kBlocks];
          if (each.ok()) {
            block = {.sure = each.tag(), .uncertain = {}};
            continue;
          }
          ASSERT_EQ(each.error().code(), Code::kIndeterminate) << each.error();
          block.uncertain.push_back(each.tag());
          ++uncertain;
        }
      }
    }
  }
  ASSERT_TRUE(ok(faults_.set_rates({})));
  ASSERT_TRUE(ok(session().settled(20s)));
  for (std::size_t number = 1; number <= count; ++number) EXPECT_EQ(ended[number], 1) << number;
  for (std::size_t at = 0; at < kBlocks; ++at) {
    StampBytes found{};
    ASSERT_TRUE(ok(region.read(ByteOffset{at * 512}, found)));
    std::uint64_t number = 0;
    std::memcpy(&number, found.data(), sizeof number);
    EXPECT_EQ(found, stamp_of(number)) << "torn";
    bool known = number == blocks[at].sure;
    for (const std::uint64_t maybe : blocks[at].uncertain) known = known || number == maybe;
    EXPECT_TRUE(known) << "block " << at << " holds " << number << ", acknowledged was "
                       << blocks[at].sure;
  }
  const FaultCounts counts = faults_.counts();
  EXPECT_GT(uncertain, 0U);
  EXPECT_GT(counts.lanes_lost + counts.connections_lost, 0U);
  EXPECT_GT(counts.chains_reordered, 0U);
  EXPECT_GE(uncertain, counts.lanes_lost + counts.connections_lost);
}

REMORA_CONFORMANCE(FaultTransportTest);

}  // namespace
}  // namespace remora::test
