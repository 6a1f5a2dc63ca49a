/// The queue: what goes in comes out once, with its tag, in whatever order; nothing blocks that may
/// not, nothing is lost at its edges.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <gmock/gmock.h>
#include <set>
#include <thread>
#include <utility>

#include "conformance_test.h"

namespace remora::test {
namespace {

using Clock = std::chrono::steady_clock;

class QueueTest : public ConformanceTest {};

TEST_P(QueueTest, MixedOperationsKeepTagsTicketsAndValues) {
  const Region region = make_region({.size_bytes = 64_KiB});
  Queue queue = region.queue({.depth = 16}).value();
  const std::vector<std::byte> model = noise(4096, 20);
  std::vector<std::byte> seen(4096);
  ASSERT_TRUE(ok(region.write(ByteOffset{8192}, model)));
  std::vector<Ticket> tickets(6);
  tickets[1] = queue.write(Block{0}, model, 1);
  tickets[2] = queue.read(Block{2}, seen, 2);
  tickets[3] = queue.fetch_add(ByteOffset{16384}, 5, 3);
  tickets[4] = queue.compare_swap(ByteOffset{16392}, 0, 77, 4);
  tickets[5] = queue.compare_swap(ByteOffset{16400}, 1, 88, 5);
  EXPECT_EQ(queue.size(), 5U);
  ASSERT_TRUE(ok(queue.submit()));
  std::set<std::uint64_t> tags;
  while (queue.size() != 0)
    for (Completion& completion : queue.wait(1)) {
      EXPECT_TRUE(completion.ok()) << completion.error();
      EXPECT_TRUE(tags.insert(completion.tag()).second);
      EXPECT_EQ(completion.ticket(), tickets.at(completion.tag()));
      if (completion.tag() >= 3) {
        EXPECT_EQ(completion.old_value(), 0U);
      }
    }
  EXPECT_EQ(tags.size(), 5U);
  EXPECT_TRUE(same_bytes(seen, model));
  EXPECT_EQ(region.fetch_add(ByteOffset{16384}, 0).value(), 5U);
  EXPECT_EQ(region.fetch_add(ByteOffset{16392}, 0).value(), 77U);
  EXPECT_EQ(region.fetch_add(ByteOffset{16400}, 0).value(), 0U);  // expected 1, found 0
  ASSERT_TRUE(ok(region.read(Block{0}, seen)));
  EXPECT_TRUE(same_bytes(seen, model));
}

TEST_P(QueueTest, QueuesOfManyRegionsAreIndependent) {
  constexpr std::size_t kRegions = 8;
  std::vector<Region> regions;
  std::vector<Queue> queues;
  std::vector<std::vector<std::byte>> models;
  for (std::size_t i = 0; i < kRegions; ++i) {
    regions.push_back(make_region({.size_bytes = 64_KiB}));
    queues.push_back(regions.back().queue({.depth = 8}).value());
    models.push_back(noise(64_KiB, 100 + i));
  }
  for (std::uint64_t block = 0; block < 16; ++block)
    for (std::size_t i = 0; i < kRegions; ++i) {
      const auto part = std::span{models[i]}.subspan(block * 4096, 4096);
      while (!queues[i].write(Block{block}, part, block)) drain(queues[i]);
    }
  // Submitted in one order, waited for in the other.
  for (Queue& queue : queues) ASSERT_TRUE(ok(queue.submit()));
  for (std::size_t i = kRegions; i-- > 0;) drain(queues[i]);
  for (std::size_t i = 0; i < kRegions; ++i)
    EXPECT_TRUE(same_bytes(read_all(regions[i]), models[i])) << i;
}

TEST_P(QueueTest, FullQueueTakesNothingAndLeavesTheSlot) {
  const Region region = make_region();
  SlotPool slots = engine().allocate_slots(5, 64).value();
  Queue queue = region.queue({.depth = 4}).value();
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(queue.read(ByteOffset{i}, slots.take(), i));
  EXPECT_TRUE(queue.full());
  Slot kept = slots.take();
  ASSERT_TRUE(kept);
  EXPECT_FALSE(queue.read(ByteOffset{0}, std::move(kept), 9));
  EXPECT_TRUE(kept);  // NOLINT(bugprone-use-after-move): that it was not moved is the point
  EXPECT_FALSE(queue.write(ByteOffset{0}, std::move(kept), 9));
  EXPECT_TRUE(kept);  // NOLINT(bugprone-use-after-move)
  EXPECT_FALSE(queue.fetch_add(ByteOffset{0}, 1, 9));
  EXPECT_FALSE(queue.compare_swap(ByteOffset{0}, 0, 1, 9));
  EXPECT_EQ(drain(queue).size(), 4U);
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 0U);
  EXPECT_FALSE(queue.full());
  EXPECT_TRUE(queue.read(ByteOffset{0}, std::move(kept), 10));
  EXPECT_EQ(drain(queue), std::vector<std::uint64_t>{10});
}

TEST_P(QueueTest, CompletedButNotFetchedCountsAgainstTheDepth) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 2}).value();
  ASSERT_TRUE(queue.fetch_add(ByteOffset{0}, 1));
  ASSERT_TRUE(queue.fetch_add(ByteOffset{0}, 1));
  ASSERT_TRUE(ok(queue.submit()));
  std::this_thread::sleep_for(20ms);
  EXPECT_TRUE(queue.full());
  EXPECT_FALSE(queue.fetch_add(ByteOffset{0}, 1));
  EXPECT_EQ(drain(queue).size(), 2U);
}

TEST_P(QueueTest, TicketsOfADepthOfOneNeverRepeat) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 1}).value();
  std::set<std::vector<std::byte>> seen;
  for (std::uint64_t i = 0; i < steps(20'000); ++i) {
    const Ticket ticket = queue.fetch_add(ByteOffset{8}, 1, i);
    ASSERT_TRUE(ticket);
    ASSERT_TRUE(ok(queue.submit()));
    const Completions found = queue.wait(1);
    ASSERT_EQ(found.size(), 1U);
    ASSERT_EQ(found.begin()->ticket(), ticket);
    ASSERT_EQ(found.begin()->old_value(), i);
    const auto raw = std::as_bytes(std::span{&ticket, 1});
    ASSERT_TRUE(seen.emplace(raw.begin(), raw.end()).second) << "a ticket came twice";
  }
}

TEST_P(QueueTest, DeepestQueueCompletesAllOfIt) {
  const Region region = make_region();
  const std::size_t depth = over_shm() ? kMaxQueueDepth : kMaxQueueDepth / 8;
  Queue queue = region.queue({.depth = depth, .deadline = 60s}).value();
  EXPECT_EQ(queue.depth(), depth);
  for (std::size_t i = 0; i < depth; ++i) ASSERT_TRUE(queue.fetch_add(ByteOffset{16}, 1, i));
  EXPECT_TRUE(queue.full());
  std::vector<std::uint64_t> tags = drain(queue);
  std::sort(tags.begin(), tags.end());
  ASSERT_EQ(tags.size(), depth);
  for (std::size_t i = 0; i < depth; ++i) ASSERT_EQ(tags[i], i);
  EXPECT_EQ(region.fetch_add(ByteOffset{16}, 0).value(), depth);
}

TEST_P(QueueTest, WaitForMoreThanIsInFlightReturnsWhatThereIs) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 8}).value();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.fetch_add(ByteOffset{0}, 1));
  ASSERT_TRUE(ok(queue.submit()));
  EXPECT_EQ(queue.wait(100).size(), 3U);
  EXPECT_EQ(queue.size(), 0U);
}

TEST_P(QueueTest, NothingInFlightNeverBlocks) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 8}).value();
  const Timed timed;
  EXPECT_TRUE(ok(queue.submit()));
  EXPECT_TRUE(queue.wait(5).empty());
  EXPECT_TRUE(queue.poll().empty());
  ASSERT_TRUE(queue.fetch_add(ByteOffset{0}, 1));
  EXPECT_TRUE(queue.wait(1).empty());  // taken, not submitted
  EXPECT_EQ(queue.size(), 1U);
  EXPECT_TRUE(timed.took_at_most(20s));
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 0U);
  EXPECT_EQ(drain(queue).size(), 1U);
}

TEST_P(QueueTest, PollSeesCompletionsWithoutBlocking) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 8}).value();
  ASSERT_TRUE(queue.fetch_add(ByteOffset{0}, 1, 42));
  ASSERT_TRUE(ok(queue.submit()));
  std::size_t found = 0;
  for (Patience patience; found == 0 && !patience.over();)
    for (Completion& completion : queue.poll()) {
      EXPECT_EQ(completion.tag(), 42U);
      ++found;
    }
  EXPECT_EQ(found, 1U);
}

TEST_P(QueueTest, WrongOperationsCompleteBesideRightOnes) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 8}).value();
  std::vector<std::byte> bytes(64);
  const std::uint64_t end = region.size_bytes();
  ASSERT_TRUE(queue.fetch_add(ByteOffset{0}, 1, 0));
  ASSERT_TRUE(queue.read(ByteOffset{end - 63}, bytes, 1));
  ASSERT_TRUE(queue.fetch_add(ByteOffset{4}, 1, 2));
  ASSERT_TRUE(queue.write(ByteOffset{0}, std::span<const std::byte>{}, 3));
  ASSERT_TRUE(queue.read(ByteOffset{0}, Slot{}, 4));
  ASSERT_TRUE(queue.fetch_add(ByteOffset{0}, 1, 5));
  ASSERT_TRUE(ok(queue.submit()));
  std::vector<std::string> ends(6, "never");
  while (queue.size() != 0)
    for (Completion& completion : queue.wait(1)) {
      EXPECT_EQ(ends.at(completion.tag()), "never");
      ends.at(completion.tag()) =
          completion.ok() ? "ok" : std::string{to_string(completion.error().code())};
    }
  EXPECT_THAT(ends, testing::ElementsAre("ok", "out of range", "misaligned", "invalid argument",
                                         "invalid argument", "ok"));
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 2U);
}

TEST_P(QueueTest, DestroyedQueueTouchesNoBufferLater) {
  const Region region = make_region({.size_bytes = 1_MiB});
  const std::vector<std::byte> model = noise(1_MiB, 21);
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
  std::vector<std::byte> target(1_MiB);
  {
    Queue queue = region.queue({.depth = 16, .deadline = 10s}).value();
    for (std::size_t i = 0; i < 16; ++i)
      ASSERT_TRUE(
          queue.read(ByteOffset{i * 64_KiB}, std::span{target}.subspan(i * 64_KiB, 64_KiB)));
    ASSERT_TRUE(ok(queue.submit()));
  }
  std::fill(target.begin(), target.end(), std::byte{0x5a});
  std::this_thread::sleep_for(100ms);
  EXPECT_TRUE(same_bytes(target, std::vector<std::byte>(1_MiB, std::byte{0x5a})));
  EXPECT_TRUE(same_bytes(read_all(region), model));
}

TEST_P(QueueTest, DestroyedQueueSendsNothingThatWasNotSubmitted) {
  const Region region = make_region();
  SlotPool slots = engine().allocate_slots(1, 64).value();
  {
    Queue queue = region.queue({.depth = 4}).value();
    Slot slot = slots.take();
    fill(slot.bytes(), 1);
    ASSERT_TRUE(queue.write(ByteOffset{0}, std::move(slot)));
    ASSERT_TRUE(queue.fetch_add(ByteOffset{64}, 1));
  }
  EXPECT_TRUE(slots.take()) << "the slot did not come back";
  EXPECT_EQ(read_all(region), std::vector<std::byte>(region.size_bytes()));
}

TEST_P(QueueTest, MovedQueueKeepsItsOperations) {
  const Region region = make_region();
  Queue first = region.queue({.depth = 4}).value();
  ASSERT_TRUE(first.fetch_add(ByteOffset{0}, 1, 1));
  ASSERT_TRUE(ok(first.submit()));
  ASSERT_TRUE(first.fetch_add(ByteOffset{0}, 1, 2));
  Queue second{std::move(first)};
  EXPECT_EQ(second.size(), 2U);
  EXPECT_EQ(drain(second).size(), 2U);

  // Assigning over a queue ends that one's operations and keeps the other's.
  ASSERT_TRUE(second.fetch_add(ByteOffset{8}, 1, 3));
  ASSERT_TRUE(ok(second.submit()));
  Queue third = region.queue({.depth = 2}).value();
  ASSERT_TRUE(third.fetch_add(ByteOffset{16}, 1, 4));
  second = std::move(third);
  EXPECT_EQ(second.depth(), 2U);
  EXPECT_EQ(drain(second), std::vector<std::uint64_t>{4});
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 2U);
  EXPECT_EQ(region.fetch_add(ByteOffset{8}, 0).value(), 1U);
}

TEST_P(QueueTest, QueueOutlivesRegionHandleAndEngine) {
  const RegionInfo made = create();
  {
    std::optional<Engine> other = open_engine();
    std::optional<Region> region = other->open_region(uri(made.name), Rights::kAll).value();
    Queue queue = region->queue({.depth = 4}).value();
    region.reset();
    other.reset();
    ASSERT_TRUE(queue.fetch_add(ByteOffset{0}, 3));
    EXPECT_EQ(drain(queue).size(), 1U);
  }
  EXPECT_EQ(open(made.name).fetch_add(ByteOffset{0}, 0).value(), 3U);
}

TEST_P(QueueTest, SubmitInPartsCompletesAll) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 64}).value();
  std::size_t done = 0;
  Random random{30};
  for (std::size_t round = 0; round < steps(500); ++round) {
    for (std::uint64_t i = random.below(8); i > 0; --i)
      if (!queue.full()) {
        ASSERT_TRUE(queue.fetch_add(ByteOffset{24}, 1));
      }
    ASSERT_TRUE(ok(queue.submit()));
    done += queue.wait(random.below(4)).size();
  }
  done += drain(queue).size();
  EXPECT_EQ(region.fetch_add(ByteOffset{24}, 0).value(), done);
}

REMORA_CONFORMANCE(QueueTest);

}  // namespace
}  // namespace remora::test
