/// Coroutines: tasks over one and many regions, bounded scopes, and frames that go early.

#include <stop_token>
#include <vector>

#include "async_tasks.h"
#include "conformance_test.h"

namespace remora::test {
namespace {

constexpr std::size_t kSlotBytes = 4096;

class AsyncTest : public ConformanceTest {
 protected:
  Executor executor_;
};

TEST_P(AsyncTest, OneTaskReadsWritesAndCounts) {
  const Region region = make_region();
  SlotPool slots = engine().allocate_slots(2, kSlotBytes).value();
  const auto work = [](AsyncRegion in, Slot slot) -> Task<Status> {
    const Status same = co_await write_and_read_back(in, std::move(slot));
    if (!same) co_return same.error();
    EXPECT_EQ((co_await in.fetch_add(ByteOffset{8}, 3)).value(), 0U);
    EXPECT_EQ((co_await in.compare_swap(ByteOffset{8}, 3, 9)).value(), 3U);
    EXPECT_EQ((co_await in.fetch_add(ByteOffset{8}, 0)).value(), 9U);
    co_return Status{};
  };
  EXPECT_TRUE(ok(executor_.run(work(region.async(), slots.take()))));
  EXPECT_TRUE(slots.take() && slots.take());  // all slots are back
}

TEST_P(AsyncTest, PipelineOfSixteenCopiesARegion) {
  const Region from = make_region({.size_bytes = 1_MiB});
  const Region to = make_region({.size_bytes = 1_MiB});
  const std::vector<std::byte> model = noise(1_MiB, 6);
  ASSERT_TRUE(ok(from.write(ByteOffset{0}, model)));
  SlotPool slots = engine().allocate_slots(17, kSlotBytes).value();
  for (std::size_t round = 0; round < 3; ++round)
    ASSERT_TRUE(
        ok(executor_.run(move_blocks(from.async(), to.async(), from.block_count(), slots, 16))));
  EXPECT_TRUE(same_bytes(read_all(to), model));
}

TEST_P(AsyncTest, MoreThanTheDepthWaitForTheirTurn) {
  const Region region = make_region();
  const auto all = [&](AsyncRegion in) -> Task<Status> {
    Scope scope{300};
    for (int i = 0; i < 300; ++i) co_await scope.spawn(add_one(in, ByteOffset{0}));
    co_return co_await scope.join();
  };
  Executor narrow{{.depth = 3}};
  EXPECT_TRUE(ok(narrow.run(all(region.async()))));
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 300U);
}

TEST_P(AsyncTest, FirstErrorStopsTheRest) {
  const Region region = make_region({.size_bytes = 64_KiB});
  SlotPool slots = engine().allocate_slots(4, kSlotBytes).value();
  std::size_t started = 0;
  const auto all = [&](AsyncRegion in) -> Task<Status> {
    Scope scope{1};
    for (std::uint64_t block = 14; block < 100; ++block)  // there are 16
      started += co_await scope.spawn(move_block(in, in, block, slots.take()));
    co_return co_await scope.join();
  };
  EXPECT_TRUE(fails_with(executor_.run(all(region.async())), Code::kOutOfRange));
  EXPECT_EQ(started, 3U);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Slot{slots.take()});
}

TEST_P(AsyncTest, ScopeLeftEarlyDestroysWhatRunsAndNothingIsWrittenAfter) {
  const Region region = make_region({.size_bytes = 1_MiB});
  SlotPool slots = engine().allocate_slots(8, 64_KiB).value();
  const auto leave = [&](AsyncRegion in) -> Task<Status> {
    {
      Scope scope{8};
      for (std::uint64_t i = 0; i < 8; ++i)
        co_await scope.spawn(
            [](AsyncRegion at_region, Slot slot, std::uint64_t at) -> Task<Status> {
              auto seen = co_await at_region.read(ByteOffset{at * 64_KiB}, std::move(slot));
              co_return seen ? Status{} : Status{seen.error()};
            }(in, slots.take(), i));
      (void)co_await in.fetch_add(ByteOffset{8}, 1);  // all are submitted
    }
    co_return Status{};
  };
  for (std::size_t round = 0; round < steps(50); ++round) {
    ASSERT_TRUE(ok(executor_.run(leave(region.async()))));
    // run() has waited for what was in flight: every slot is back.
    std::vector<Slot> all(8);
    for (Slot& slot : all) ASSERT_TRUE(slot = slots.take());
  }
}

TEST_P(AsyncTest, TaskThatNeverRanIsDestroyed) {
  const Region region = make_region();
  SlotPool slots = engine().allocate_slots(1, kSlotBytes).value();
  { const Task<Status> task = move_block(region.async(), region.async(), 0, slots.take()); }
  EXPECT_TRUE(slots.take());
}

/// Counts, and asks for a stop at the third.
Task<Status> count_until_stop(AsyncRegion in, std::stop_source stop) {
  const auto before = co_await in.fetch_add(ByteOffset{0}, 1);
  if (!before) co_return before.error();
  if (*before == 2) stop.request_stop();
  co_return Status{};
}

TEST_P(AsyncTest, AfterAStopNothingBeginsAndWhatWasSentEnds) {
  const Region region = make_region();
  std::stop_source stop;
  const auto all = [&](AsyncRegion in) -> Task<Status> {
    Scope scope{4, stop.get_token()};
    int started = 0;
    while (co_await scope.spawn(count_until_stop(in, stop))) ++started;
    EXPECT_LE(started, 6);
    co_return co_await scope.join();
  };
  // One at a time: those that wait for their turn when the stop is requested are never sent.
  Executor narrow{{.depth = 1}};
  const Status ended = narrow.run(all(region.async().with_stop(stop.get_token())));
  EXPECT_TRUE(fails_with(ended, Code::kCancelled));
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 3U);
}

TEST_P(AsyncTest, StoppedTransferGivesItsSlotBackAndSendsNothing) {
  const Region region = make_region();
  SlotPool slots = engine().allocate_slots(1, kSlotBytes).value();
  std::stop_source stop;
  stop.request_stop();
  const auto write = [](AsyncRegion in, Slot slot) -> Task<Status> {
    fill(slot.bytes(), 1);
    const auto back = co_await in.write(Block{0}, std::move(slot));
    co_return back ? Status{} : Status{back.error()};
  };
  const AsyncRegion stopped = region.async().with_stop(stop.get_token());
  EXPECT_TRUE(fails_with(executor_.run(write(stopped, slots.take())), Code::kCancelled));
  EXPECT_TRUE(slots.take());
  EXPECT_EQ(read_all(region), std::vector<std::byte>(region.size_bytes()));
}

REMORA_CONFORMANCE(AsyncTest);

}  // namespace
}  // namespace remora::test
