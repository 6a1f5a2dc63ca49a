/// Slots and registered memory: the operation, the completion or the caller owns them, and they
/// come back to the pool.

#include <array>
#include <set>
#include <thread>
#include <utility>

#include "conformance_test.h"

namespace remora::test {
namespace {

class BufferTest : public ConformanceTest {};

TEST_P(BufferTest, SlotsAreAsLongAsAskedFor) {
  EXPECT_EQ(engine().allocate_slots(1, 1).value().slot_bytes(), 1U);
  EXPECT_EQ(engine().allocate_slots(1, 64).value().slot_bytes(), 64U);
  EXPECT_EQ(engine().allocate_slots(3, 100).value().slot_bytes(), 100U);
  EXPECT_EQ(engine().allocate_slots(3, 100).value().slot_count(), 3U);
}

TEST_P(BufferTest, NoSlotsOrNoBytesAreInvalid) {
  EXPECT_TRUE(fails_with(engine().allocate_slots(0, 64), Code::kInvalidArgument));
  EXPECT_TRUE(fails_with(engine().allocate_slots(1, 0), Code::kInvalidArgument));
  EXPECT_TRUE(fails_with(engine().register_memory({}), Code::kInvalidArgument));
}

TEST_P(BufferTest, ExhaustedPoolGivesEmptySlotsUntilOneReturns) {
  SlotPool slots = engine().allocate_slots(2, 64).value();
  Slot first = slots.take();
  Slot second = slots.take();
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(slots.take());
  first = Slot{};
  EXPECT_TRUE(slots.take());
  Slot moved{std::move(second)};
  EXPECT_FALSE(second);  // NOLINT(bugprone-use-after-move): that it is empty is the contract
  EXPECT_TRUE(moved);
}

TEST_P(BufferTest, SlotsNeverOverlap) {
  SlotPool slots = engine().allocate_slots(50, 128).value();
  std::vector<Slot> all;
  for (Slot slot = slots.take(); slot; slot = slots.take()) all.push_back(std::move(slot));
  ASSERT_EQ(all.size(), 50U);
  std::set<std::byte*> starts;
  for (const Slot& slot : all) {
    EXPECT_EQ(slot.bytes().size(), 128U);
    for (std::size_t i = 0; i < 128; ++i)
      EXPECT_TRUE(starts.insert(slot.bytes().data() + i).second);
  }
}

TEST_P(BufferTest, SlotComesBackWithItsCompletionAndGoesWithIt) {
  const Region region = make_region();
  const std::vector<std::byte> model = noise(64, 40);
  ASSERT_TRUE(ok(region.write(ByteOffset{128}, model)));
  SlotPool slots = engine().allocate_slots(1, 64).value();
  Queue queue = region.queue({.depth = 2}).value();
  ASSERT_TRUE(queue.read(ByteOffset{128}, slots.take()));
  EXPECT_FALSE(slots.take()) << "the operation holds it";
  ASSERT_TRUE(ok(queue.submit()));
  {
    const Completions found = queue.wait(1);
    ASSERT_EQ(found.size(), 1U);
    ASSERT_TRUE(found.begin()->ok()) << found.begin()->error();
    ASSERT_TRUE(found.begin()->slot());
    EXPECT_TRUE(same_bytes(found.begin()->slot().bytes(), model));
    EXPECT_FALSE(slots.take()) << "the completion holds it";
  }
  EXPECT_TRUE(slots.take());
}

TEST_P(BufferTest, NextWaitGivesTheSlotsBackToo) {
  const Region region = make_region();
  SlotPool slots = engine().allocate_slots(1, 64).value();
  Queue queue = region.queue({.depth = 2}).value();
  ASSERT_TRUE(queue.read(ByteOffset{0}, slots.take()));
  ASSERT_TRUE(ok(queue.submit()));
  const Completions found = queue.wait(1);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(queue.poll().empty());
  EXPECT_TRUE(slots.take());
}

TEST_P(BufferTest, SlotMovedOutOutlivesCompletionQueueAndPool) {
  const Region region = make_region();
  const std::vector<std::byte> model = noise(64, 41);
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
  Slot kept;
  {
    SlotPool slots = engine().allocate_slots(1, 64).value();
    Queue queue = region.queue({.depth = 2}).value();
    ASSERT_TRUE(queue.read(ByteOffset{0}, slots.take()));
    ASSERT_TRUE(ok(queue.submit()));
    for (Completion& completion : queue.wait(1)) kept = std::move(completion.slot());
    EXPECT_FALSE(slots.take());
  }
  ASSERT_TRUE(kept);
  EXPECT_TRUE(same_bytes(kept.bytes(), model));
  ASSERT_TRUE(ok(region.write(ByteOffset{64}, kept)));
  kept = Slot{};
}

TEST_P(BufferTest, FailedOperationGivesTheSlotBackToo) {
  const Region region = make_region();
  SlotPool slots = engine().allocate_slots(1, 64).value();
  Queue queue = region.queue({.depth = 2}).value();
  ASSERT_TRUE(queue.read(ByteOffset{region.size_bytes()}, slots.take()));
  ASSERT_TRUE(ok(queue.submit()));
  {
    const Completions found = queue.wait(1);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found.begin()->error().code(), Code::kOutOfRange);
    EXPECT_TRUE(found.begin()->slot());
  }
  EXPECT_TRUE(slots.take());
}

TEST_P(BufferTest, SlotsCirculateThroughADeepPipeline) {
  const Region region = make_region({.size_bytes = 256_KiB});
  std::vector<std::byte> model(256_KiB);
  for (std::uint64_t at = 0; at < model.size(); at += 4096)
    stamp(std::span{model}.subspan(at, 4096), 1, at);
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
  SlotPool slots = engine().allocate_slots(16, 4096).value();
  Queue queue = region.queue({.depth = 16}).value();
  const std::size_t total = steps(5000);
  Random random{42};
  for (std::size_t sent = 0, done = 0; done < total;) {
    for (; sent < total && !queue.full(); ++sent) {
      const std::uint64_t block = random.below(64);
      ASSERT_TRUE(queue.read(Block{block}, slots.take(), block));
    }
    ASSERT_TRUE(ok(queue.submit()));
    for (Completion& completion : queue.wait(1)) {
      ASSERT_TRUE(completion.ok()) << completion.error();
      ASSERT_TRUE(stamped(completion.slot().bytes(), 1, completion.tag() * 4096));
      ++done;
    }
  }
}

TEST_P(BufferTest, ManyThreadsShareAPoolOfSlots) {
  constexpr std::size_t kThreads = 8;
  SlotPool slots = engine().allocate_slots(kThreads * 2, 64).value();
  std::vector<std::thread> threads;
  std::array<bool, kThreads> intact{};
  for (std::size_t id = 0; id < kThreads; ++id)
    threads.emplace_back([&, id] {
      bool good = true;
      for (std::size_t i = 0; i < 2000; ++i) {
        Slot one = slots.take();
        Slot two = slots.take();
        if (!one || !two) {
          good = false;  // each thread holds two slots at most
          continue;
        }
        fill(one.bytes(), id * 10'000 + i);
        fill(two.bytes(), i);
        good = good && one.bytes().data() != two.bytes().data() &&
               same_bytes(one.bytes(), noise(64, id * 10'000 + i)) &&
               same_bytes(two.bytes(), noise(64, i));
      }
      intact[id] = good;
    });
  for (std::thread& thread : threads) thread.join();
  for (const bool good : intact) EXPECT_TRUE(good);
}

TEST_P(BufferTest, RegisteredMemoryServesSeveralSessions) {
  const Region first = make_region();
  std::vector<std::byte> bytes = noise(8192, 43);
  const std::vector<std::byte> model = bytes;
  const RegisteredMemory memory = engine().register_memory(bytes).value();
  EXPECT_EQ(memory.bytes().data(), bytes.data());
  EXPECT_EQ(memory.bytes().size(), bytes.size());
  const Region second = make_region();
  for (const Region* region : {&first, &second}) {
    ASSERT_TRUE(ok(region->write(ByteOffset{64}, Source{memory, 100, 8000})));
    ASSERT_TRUE(ok(region->read(ByteOffset{64}, Target{memory, 100, 8000})));
  }
  EXPECT_TRUE(same_bytes(bytes, model));
}

TEST_P(BufferTest, PartOutsideOfRegisteredMemoryIsOutOfRange) {
  const Region region = make_region();
  std::vector<std::byte> bytes(4096);
  const RegisteredMemory memory = engine().register_memory(bytes).value();
  EXPECT_TRUE(ok(region.write(ByteOffset{0}, Source{memory, 4095, 1})));
  EXPECT_TRUE(fails_with(region.write(ByteOffset{0}, Source{memory, 4095, 2}), Code::kOutOfRange));
  EXPECT_TRUE(fails_with(region.read(ByteOffset{0}, Target{memory, 4096, 1}), Code::kOutOfRange));
  EXPECT_TRUE(fails_with(region.read(ByteOffset{0}, Target{memory, SIZE_MAX, 2}),
                         Code::kOutOfRange));  // offset + length wraps around
}

TEST_P(BufferTest, RegisteredMemoryOutlivesTheEngineHandle) {
  std::vector<std::byte> bytes(4096);
  RegisteredMemory memory;
  {
    const Engine other = open_engine();
    memory = other.register_memory(bytes).value();
    const RegionInfo made = create();
    const Region region = other.open_region(uri(made.name), Rights::kAll).value();
    ASSERT_TRUE(ok(region.write(ByteOffset{0}, Source{memory, 0, 4096})));
  }
  EXPECT_EQ(memory.bytes().size(), 4096U);
}

REMORA_CONFORMANCE(BufferTest);

}  // namespace
}  // namespace remora::test
