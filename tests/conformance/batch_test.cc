/// Large batches whose blocks come in no order: each arrives where it belongs, once, whatever the
/// engine makes of them.

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <random>
#include <vector>

#include "conformance_test.h"

namespace remora::test {
namespace {

constexpr std::uint64_t kBatchBlock = 4096;

class BatchTest : public ConformanceTest {
 protected:
  static std::vector<std::uint64_t> shuffled(std::uint64_t count, std::uint64_t seed) {
    std::vector<std::uint64_t> order(count);
    std::iota(order.begin(), order.end(), std::uint64_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937_64{seed});
    return order;
  }
  /// The block's part of memory that is like the region.
  template <typename Bytes>
  static auto part(Bytes& bytes, std::uint64_t block) {
    return std::span{bytes}.subspan(block * kBatchBlock, kBatchBlock);
  }
  /// Ends all; each of the tags from 0 on must come once.
  static void finish(Queue& queue) {
    const std::size_t count = queue.size();
    std::vector<std::uint64_t> tags = drain(queue);
    std::sort(tags.begin(), tags.end());
    std::vector<std::uint64_t> wanted(count);
    std::iota(wanted.begin(), wanted.end(), std::uint64_t{0});
    ASSERT_EQ(tags, wanted);
  }
};

TEST_P(BatchTest, ShuffledBlocksOfAnyMemoryArriveWhereTheyBelong) {
  constexpr std::uint64_t kBlocks = 512;
  const Region region = make_region({.size_bytes = kBlocks * kBatchBlock});
  Queue queue = region.queue({.depth = kBlocks}).value();
  for (const bool registered : {true, false}) {
    const std::vector<std::byte> model = noise(kBlocks * kBatchBlock, registered ? 1 : 2);
    std::vector<std::byte> from = model;
    std::vector<std::byte> into(from.size());
    RegisteredMemory from_memory;
    RegisteredMemory into_memory;
    if (registered) {
      from_memory = engine().register_memory(from).value();
      into_memory = engine().register_memory(into).value();
    }
    for (std::uint64_t i = 0; const std::uint64_t block : shuffled(kBlocks, 3)) {
      if (registered)
        queue.write(Block{block}, Source{from_memory, block * kBatchBlock, kBatchBlock}, i++);
      else
        queue.write(Block{block}, part(from, block), i++);
    }
    finish(queue);
    ASSERT_TRUE(same_bytes(read_all(region), model));
    for (std::uint64_t i = 0; const std::uint64_t block : shuffled(kBlocks, 4)) {
      if (registered)
        queue.read(Block{block}, Target{into_memory, block * kBatchBlock, kBatchBlock}, i++);
      else
        queue.read(Block{block}, part(into, block), i++);
    }
    finish(queue);
    ASSERT_TRUE(same_bytes(into, model));
  }
}

TEST_P(BatchTest, ShuffledSlotsComeBackWithTheirOwnBlocks) {
  constexpr std::uint64_t kBlocks = 256;
  const Region region = make_region({.size_bytes = kBlocks * kBatchBlock});
  const std::vector<std::byte> model = noise(kBlocks * kBatchBlock, 5);
  SlotPool pool = engine().allocate_slots(kBlocks, kBatchBlock).value();
  Queue queue = region.queue({.depth = kBlocks}).value();
  // Neighbouring slots for neighbouring blocks.
  const auto take_all = [&pool] {
    std::vector<Slot> slots;
    while (slots.size() < kBlocks) slots.push_back(pool.take());
    std::sort(slots.begin(), slots.end(), [](const Slot& one, const Slot& other) {
      return one.bytes().data() < other.bytes().data();
    });
    return slots;
  };
  std::vector<Slot> slots = take_all();
  for (std::uint64_t i = 0; const std::uint64_t block : shuffled(kBlocks, 6)) {
    const auto bytes = part(model, block);
    std::copy(bytes.begin(), bytes.end(), slots[block].bytes().begin());
    ASSERT_TRUE(queue.write(Block{block}, std::move(slots[block]), i++));
  }
  finish(queue);
  ASSERT_TRUE(same_bytes(read_all(region), model));
  slots = take_all();
  for (const std::uint64_t block : shuffled(kBlocks, 7))
    ASSERT_TRUE(queue.read(Block{block}, std::move(slots[block]), block));
  ASSERT_TRUE(ok(queue.submit()));
  std::size_t seen = 0;
  while (queue.size() != 0)
    for (Completion& completion : queue.wait(1)) {
      ASSERT_TRUE(completion.ok()) << completion.error();
      ASSERT_TRUE(same_bytes(completion.slot().bytes(), part(model, completion.tag())));
      ++seen;
    }
  EXPECT_EQ(seen, kBlocks);
}

TEST_P(BatchTest, LengthsOfAllKindsArriveWhereTheyBelong) {
  const Region region = make_region({.size_bytes = 1_MiB});
  std::vector<std::byte> model = noise(1_MiB, 8);
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
  std::vector<std::byte> bytes = noise(1_MiB, 9);
  const RegisteredMemory memory = engine().register_memory(bytes).value();
  Queue queue = region.queue({.depth = 400}).value();
  std::vector<std::pair<std::size_t, std::size_t>> pieces;
  for (std::size_t at = 5, i = 0; i < 400; ++i) {
    const std::size_t length = 1 + i * 2654435761U % 3000;
    pieces.emplace_back(at, length);
    at += length;
    if (at > 1_MiB - 3000) break;
  }
  for (std::uint64_t i = 0; const std::uint64_t which : shuffled(pieces.size(), 10)) {
    const auto [at, length] = pieces[which];
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), length,
                model.begin() + static_cast<std::ptrdiff_t>(at));
    ASSERT_TRUE(queue.write(ByteOffset{at}, Source{memory, at, length}, i++));
  }
  finish(queue);
  EXPECT_TRUE(same_bytes(read_all(region), model));
}

TEST_P(BatchTest, EverythingElseAmongShuffledBlocksDoesWhatItDoesAlone) {
  constexpr std::uint64_t kBlocks = 128;
  // Blocks first, then words, then what else is written.
  const Region region = make_region({.size_bytes = 1_MiB});
  std::vector<std::byte> model(1_MiB);
  std::vector<std::byte> bytes = noise(kBlocks * kBatchBlock, 11);
  std::copy(bytes.begin(), bytes.end(), model.begin());
  const RegisteredMemory memory = engine().register_memory(bytes).value();
  constexpr std::uint64_t kWords = 512_KiB;
  constexpr std::uint64_t kElse = 640_KiB;
  const std::vector<std::byte> one = noise(100, 12);
  const std::vector<std::byte> two = noise(300, 13);
  const std::vector<std::byte> zeroed = noise(64_KiB, 14);
  ASSERT_TRUE(ok(region.write(ByteOffset{kElse + 64_KiB}, zeroed)));
  std::vector<std::byte> first(100);
  std::vector<std::byte> second(300);
  ASSERT_TRUE(ok(region.write(ByteOffset{kElse + 4096}, one)));
  ASSERT_TRUE(ok(region.write(ByteOffset{kElse + 4196}, two)));

  const std::array<Target, 2> targets{Target{first}, Target{second}};
  const std::array<Source, 2> sources{Source{one}, Source{two}};
  Queue queue = region.queue({.depth = 256}).value();
  std::uint64_t tag = 0;
  for (const std::uint64_t block : shuffled(kBlocks, 15)) {
    ASSERT_TRUE(queue.write(Block{block}, Source{memory, block * kBatchBlock, kBatchBlock}, tag++));
    const ByteOffset word{kWords + 8 * (block % 16)};
    if (block % 3 != 0) continue;
    switch (block / 3 % 6) {
      case 0: ASSERT_TRUE(queue.fetch_add(word, 3, tag++)); break;
      case 1:
        ASSERT_TRUE(queue.compare_swap(ByteOffset{kWords + 1024 + 8 * block}, 0, 9, tag++));
        break;
      case 2: ASSERT_TRUE(queue.flush_visible(tag++)); break;
      case 3: ASSERT_TRUE(queue.write(ByteOffset{kElse}, sources, tag++)); break;
      case 4: ASSERT_TRUE(queue.read(ByteOffset{kElse + 4096}, targets, tag++)); break;
      default: ASSERT_TRUE(queue.write_zeroes(ByteOffset{kElse + 64_KiB}, 64_KiB, tag++)); break;
    }
  }
  finish(queue);
  EXPECT_TRUE(same_bytes(first, one));
  EXPECT_TRUE(same_bytes(second, two));
  for (std::uint64_t block = 0; block < kBlocks; ++block) {
    const std::uint64_t word = kWords + 8 * (block % 16);
    if (block % 18 == 0) model[word] = std::byte{3};
    if (block % 18 == 3) model[kWords + 1024 + 8 * block] = std::byte{9};
  }
  const auto put = [&model](const std::vector<std::byte>& what, std::uint64_t at) {
    std::copy(what.begin(), what.end(), model.begin() + static_cast<std::ptrdiff_t>(at));
  };
  put(one, kElse);
  put(two, kElse + 100);
  put(one, kElse + 4096);
  put(two, kElse + 4196);
  EXPECT_TRUE(same_bytes(read_all(region), model));
}

TEST_P(BatchTest, RegionsOfOneBatchDoNotMix) {
  constexpr std::uint64_t kBlocks = 64;
  std::vector<Region> regions;
  std::vector<std::vector<std::byte>> models;
  for (std::uint64_t i = 0; i < 4; ++i) {
    regions.push_back(make_region({.size_bytes = kBlocks * kBatchBlock}));
    models.push_back(noise(kBlocks * kBatchBlock, 20 + i));
  }
  std::vector<RegisteredMemory> memories;
  memories.reserve(models.size());
  for (auto& model : models) memories.push_back(engine().register_memory(model).value());
  Queue queue = regions[0].queue({.depth = 4 * kBlocks}).value();
  for (std::uint64_t i = 0; const std::uint64_t which : shuffled(4 * kBlocks, 24)) {
    const std::uint64_t block = which / 4;
    ASSERT_TRUE(ok(queue.select(regions[which % 4])));
    ASSERT_TRUE(queue.write(Block{block},
                            Source{memories[which % 4], block * kBatchBlock, kBatchBlock}, i++));
  }
  finish(queue);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(same_bytes(read_all(regions[i]), models[i])) << i;
}

TEST_P(BatchTest, OneBlockReadManyTimesIsThereEachTime) {
  constexpr std::uint64_t kBlocks = 32;
  constexpr std::uint64_t kTimes = 4;
  const Region region = make_region({.size_bytes = kBlocks * kBatchBlock});
  const std::vector<std::byte> model = noise(kBlocks * kBatchBlock, 30);
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
  std::vector<std::byte> bytes(kTimes * model.size());
  const RegisteredMemory memory = engine().register_memory(bytes).value();
  Queue queue = region.queue({.depth = kTimes * kBlocks}).value();
  for (std::uint64_t i = 0; const std::uint64_t which : shuffled(kTimes * kBlocks, 31))
    ASSERT_TRUE(
        queue.read(Block{which % kBlocks}, Target{memory, which * kBatchBlock, kBatchBlock}, i++));
  finish(queue);
  for (std::size_t i = 0; i < kTimes; ++i)
    EXPECT_TRUE(same_bytes(std::span{bytes}.subspan(i * model.size(), model.size()), model)) << i;
}

TEST_P(BatchTest, ShuffledBlocksAroundABarrierKeepToTheirSide) {
  constexpr std::uint64_t kBlocks = 128;
  const Region region = make_region({.size_bytes = kBlocks * kBatchBlock});
  std::vector<std::byte> from(kBlocks * kBatchBlock);
  std::vector<std::byte> into(from.size());
  const RegisteredMemory from_memory = engine().register_memory(from).value();
  const RegisteredMemory into_memory = engine().register_memory(into).value();
  Queue queue = region.queue({.depth = 2 * kBlocks}).value();
  for (std::uint64_t round = 0; round < 4; ++round) {
    fill(from, 40 + round);
    std::uint64_t tag = 0;
    for (const std::uint64_t block : shuffled(kBlocks, round))
      queue.write(Block{block}, Source{from_memory, block * kBatchBlock, kBatchBlock}, tag++);
    queue.barrier();
    for (const std::uint64_t block : shuffled(kBlocks, 9 + round))
      queue.read(Block{block}, Target{into_memory, block * kBatchBlock, kBatchBlock}, tag++);
    finish(queue);
    ASSERT_TRUE(same_bytes(into, from)) << round;
  }
}

TEST_P(BatchTest, CancelledBlockOfAShuffledBatchIsNotWritten) {
  constexpr std::uint64_t kBlocks = 64;
  const Region region = make_region({.size_bytes = kBlocks * kBatchBlock});
  std::vector<std::byte> bytes = noise(kBlocks * kBatchBlock, 50);
  std::vector<std::byte> model = bytes;
  const RegisteredMemory memory = engine().register_memory(bytes).value();
  Queue queue = region.queue({.depth = kBlocks}).value();
  Ticket ticket;
  for (const std::uint64_t block : shuffled(kBlocks, 51)) {
    const Ticket taken =
        queue.write(Block{block}, Source{memory, block * kBatchBlock, kBatchBlock}, block);
    if (block == 20) ticket = taken;
  }
  ASSERT_TRUE(ok(queue.cancel(ticket)));
  ASSERT_TRUE(ok(queue.submit()));
  while (queue.size() != 0)
    for (const Completion& completion : queue.wait(1))
      EXPECT_EQ(completion.ok(), completion.tag() != 20);
  std::fill_n(model.begin() + 20 * kBatchBlock, kBatchBlock, std::byte{0});
  EXPECT_TRUE(same_bytes(read_all(region), model));
}

class BatchNotifyTest : public BatchTest {
 protected:
  [[nodiscard]] bool needs_own_server() const override { return true; }
};

TEST_P(BatchNotifyTest, NoticesAmongShuffledBlocksComeBehindTheirOwnBytes) {
  constexpr std::uint64_t kBlocks = 64;
  const Region region = make_region({.size_bytes = 2 * kBlocks * kBatchBlock});
  const RegionView view = server().view(region.info().name).value();
  std::vector<std::byte> bytes = noise(2 * kBlocks * kBatchBlock, 60);
  const RegisteredMemory memory = engine().register_memory(bytes).value();
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t right = 0;
  std::size_t told = 0;
  ASSERT_TRUE(ok(server().on_notify(region.info().name, [&](const Notification& notice) {
    std::vector<std::byte> seen(notice.length_bytes);
    EXPECT_TRUE(ok(view.read(notice.offset, seen)));
    const std::lock_guard lock{mutex};
    if (same_bytes(seen, std::span{bytes}.subspan(notice.offset.bytes, seen.size()))) ++right;
    ++told;
    changed.notify_all();
  })));
  Queue queue = region.queue({.depth = 2 * kBlocks}).value();
  for (std::uint64_t i = 0; const std::uint64_t block : shuffled(2 * kBlocks, 61)) {
    const Source from{memory, block * kBatchBlock, kBatchBlock};
    if (block % 4 == 0)
      ASSERT_TRUE(queue.write_notify(ByteOffset{block * kBatchBlock}, from, 7, i++));
    else
      ASSERT_TRUE(queue.write(Block{block}, from, i++));
  }
  finish(queue);
  {
    std::unique_lock lock{mutex};
    changed.wait_for(lock, std::chrono::seconds{20}, [&] { return told == kBlocks / 2; });
    EXPECT_EQ(told, kBlocks / 2);
    EXPECT_EQ(right, told);
  }
  EXPECT_TRUE(ok(server().on_notify(region.info().name, {})));
  EXPECT_TRUE(same_bytes(read_all(region), bytes));
}

REMORA_CONFORMANCE(BatchTest);
REMORA_CONFORMANCE(BatchNotifyTest);

}  // namespace
}  // namespace remora::test
