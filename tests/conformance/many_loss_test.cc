/// Calls with many pairs whose lane breaks, or whose deadline passes: writes that were posted are
/// uncertain and are not repeated, reads go again.

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include <remora/testing/fault_transport.h>

#include "conformance_test.h"

namespace remora::test {
namespace {

using remora::testing::FaultTransport;
using remora::testing::Landing;

constexpr std::size_t kPairs = 400;
constexpr const char* kMapped = "over shm there are no lanes that could break";

class ManyLossTest : public ConformanceTest {
 protected:
  void configure_engine(EngineOptions& options) const override {
    if (!over_shm()) options.faults = faults_.hook();
  }
  /// Pairs of 64 B that are no neighbours in the region, in slots.
  struct Memory {
    SlotPool slots;
    std::vector<Slot> taken{};
  };
  Memory memory_of(std::uint64_t seed) {
    Memory memory{engine().allocate_slots(kPairs, 64).value()};
    for (std::size_t i = 0; i < kPairs; ++i) {
      memory.taken.push_back(memory.slots.take());
      fill(memory.taken.back().bytes(), seed + i);
    }
    return memory;
  }
  static std::vector<WritePair> writes(const Memory& memory) {
    std::vector<WritePair> pairs;
    for (std::size_t i = 0; i < kPairs; ++i)
      pairs.push_back({ByteOffset{i * 128}, Source{memory.taken[i]}});
    return pairs;
  }
  static std::vector<ReadPair> reads(Memory& memory) {
    std::vector<ReadPair> pairs;
    for (std::size_t i = 0; i < kPairs; ++i)
      pairs.push_back({ByteOffset{i * 128}, Target{memory.taken[i]}});
    return pairs;
  }

  const FaultTransport faults_ = FaultTransport::create({.seed = 23}).value();
};

TEST_P(ManyLossTest, PostedWritesAreUncertainAndTheOthersGoOn) {
  if (over_shm()) GTEST_SKIP() << kMapped;
  for (const Landing landing : {Landing::kLanded, Landing::kLost})
    for (const std::uint64_t before : {0U, 5U, 300U}) {
      const Region region = make_region();
      const Memory memory = memory_of(1000 * before);
      std::vector<ManyOutcome> each(kPairs);
      faults_.lose_next_lane(landing, before);
      const Status status = region.write_many(writes(memory), {.each = each});
      ASSERT_TRUE(fails_with(status, Code::kIndeterminate));
      ASSERT_TRUE(ok(session().settled(20s)));
      const std::vector<std::byte> seen = read_all(region);
      std::size_t uncertain = 0;
      for (std::size_t i = 0; i < kPairs; ++i) {
        const auto written = std::span{seen}.subspan(i * 128, 64);
        const bool landed = std::ranges::equal(written, memory.taken[i].bytes());
        const bool untouched =
            std::ranges::all_of(written, [](std::byte b) { return b == std::byte{0}; });
        if (each[i].ok) {
          EXPECT_TRUE(landed) << "pair " << i << " was acknowledged";
          continue;
        }
        ++uncertain;
        EXPECT_EQ(each[i].code, Code::kIndeterminate) << "pair " << i;
        EXPECT_TRUE(landed || untouched) << "pair " << i;
      }
      EXPECT_GT(uncertain, 0U);
      EXPECT_LE(uncertain, kManyInFlight);
    }
}

TEST_P(ManyLossTest, ReadsGoAgainOnTheLaneThatFollows) {
  if (over_shm()) GTEST_SKIP() << kMapped;
  const Region region = make_region();
  const Memory model = memory_of(1);
  ASSERT_TRUE(ok(region.write_many(writes(model))));
  for (const std::uint64_t before : {0U, 7U, 350U}) {
    Memory into = memory_of(9000);
    std::vector<ManyOutcome> each(kPairs);
    faults_.lose_next_lane(Landing::kLost, before);
    ASSERT_TRUE(ok(region.read_many(reads(into), {.each = each})));
    for (std::size_t i = 0; i < kPairs; ++i)
      EXPECT_TRUE(same_bytes(into.taken[i].bytes(), model.taken[i].bytes())) << "pair " << i;
  }
  EXPECT_EQ(faults_.counts().lanes_lost, 3U);
}

TEST_P(ManyLossTest, DeadlineIsOneForAllPairs) {
  if (over_shm()) GTEST_SKIP() << kMapped;
  const Region region = make_region();
  const Memory memory = memory_of(1);
  std::vector<ManyOutcome> each(kPairs);
  faults_.hold_completions();
  const std::uint64_t requests = faults_.counts().requests;
  const Timed timed;
  EXPECT_FALSE(region.write_many(writes(memory), {.deadline = 1s, .each = each}).ok());
  EXPECT_TRUE(timed.took_at_most(1s + kGrace));
  faults_.release_completions();
  // The first of them were posted, unless this thread had no processor until the deadline; the last
  // ones found no room.
  if (faults_.counts().requests != requests) {
    EXPECT_EQ(each.front().code, Code::kIndeterminate);
  }
  EXPECT_EQ(each.back().code, Code::kTimedOut);
  for (const ManyOutcome& outcome : each)
    EXPECT_TRUE(!outcome.ok &&
                (outcome.code == Code::kIndeterminate || outcome.code == Code::kTimedOut));
  ASSERT_TRUE(ok(session().settled(20s)));
  std::vector<std::byte> last(64);
  ASSERT_TRUE(ok(region.read(ByteOffset{(kPairs - 1) * 128}, last)));
  EXPECT_EQ(last, std::vector<std::byte>(64)) << "it ended without remote effect";
}

Task<Status> write_group(AsyncRegion in, std::span<const WritePair> pairs,
                         std::span<ManyOutcome> each) {
  co_return co_await in.write_many(pairs, each);
}

/// The queue has room for one of two awaited groups.
TEST_P(ManyLossTest, AwaitedGroupWhoseTurnComesTooLateIsNeverSent) {
  if (over_shm()) GTEST_SKIP() << kMapped;
  const Region region = make_region();
  const Memory memory = memory_of(1);
  const std::vector<WritePair> pairs = writes(memory);
  constexpr std::size_t kHalf = kPairs / 2;
  std::vector<ManyOutcome> each(kPairs);
  AsyncQueue queue = region.async_queue({.depth = kHalf, .deadline = 1s}).value();
  const auto both = [&]() -> Task<Status> {
    Scope scope{2};
    for (const std::size_t from : {std::size_t{0}, kHalf})
      co_await scope.spawn(write_group(queue.async(), std::span{pairs}.subspan(from, kHalf),
                                       std::span{each}.subspan(from, kHalf)));
    co_return co_await scope.join();
  };
  faults_.hold_completions();
  const Timed timed;
  EXPECT_FALSE(sync_wait(both()).ok());
  EXPECT_TRUE(timed.took_at_most(1s + kGrace));
  faults_.release_completions();
  for (std::size_t i = 0; i < kPairs; ++i) {
    ASSERT_FALSE(each[i].ok) << i;
    EXPECT_TRUE(each[i].code == Code::kTimedOut ||
                (i < kHalf && each[i].code == Code::kIndeterminate))
        << i << ": " << to_string(each[i].code);
  }
  ASSERT_TRUE(ok(session().settled(20s)));
  std::vector<std::byte> last(64);
  ASSERT_TRUE(ok(region.read(ByteOffset{(kPairs - 1) * 128}, last)));
  EXPECT_EQ(last, std::vector<std::byte>(64));
}

REMORA_CONFORMANCE(ManyLossTest);

/// The server is killed: every pair ends, in time, and says how.
class ManyServerLossTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool server_in_other_process() const override { return true; }
};

TEST_P(ManyServerLossTest, EachPairOfAKilledServerEnds) {
  const Region region = make_region();
  std::vector<std::byte> bytes(64 * kPairs);
  std::vector<ReadPair> pairs;
  for (std::size_t i = 0; i < kPairs; ++i)
    pairs.push_back({ByteOffset{i * 128}, std::span{bytes}.subspan(i * 64, 64)});
  ASSERT_TRUE(ok(region.read_many(pairs)));
  kill_server();
  std::vector<ManyOutcome> each(kPairs);
  const Timed timed;
  Status status;
  do {
    status = region.read_many(pairs, {.deadline = 1s, .each = each});
  } while (status.ok() && timed.took_at_most(10s));
  EXPECT_FALSE(status.ok());
  for (const ManyOutcome& outcome : each)
    EXPECT_TRUE(outcome.ok || outcome.code == Code::kTimedOut ||
                outcome.code == Code::kConnectionLost)
        << to_string(outcome.code);
}

REMORA_CONFORMANCE(ManyServerLossTest);

}  // namespace
}  // namespace remora::test
