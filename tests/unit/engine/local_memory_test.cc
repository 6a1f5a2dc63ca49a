#include "client/local_memory.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include <remora/engine/buffer.h>

namespace remora::detail {
namespace {

TEST(SlotStore, EverySlotOnceThenNone) {
  auto store = SlotStore::create(3, 100).value();
  EXPECT_EQ(store->slot_bytes(), 100U);
  EXPECT_EQ(store->slot(1).size(), 100U);
  EXPECT_EQ(store->slot(1).data() - store->slot(0).data(), 128) << "aligned to 64";
  std::set<std::uint32_t> taken;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(taken.insert(store->take()).second);
  EXPECT_EQ(store->take(), SlotStore::kNone);
  store->give_back(*taken.begin());
  EXPECT_EQ(store->take(), *taken.begin());
  for (const std::uint32_t index : taken) store->give_back(index);
}

TEST(SlotStore, ZeroOrHugeIsInvalid) {
  EXPECT_EQ(SlotStore::create(0, 64).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(SlotStore::create(1, 0).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(SlotStore::create(1, std::size_t{1} << 40U).error().code(), Code::kInvalidArgument);
}

TEST(SlotStore, NoSlotIsOutTwiceUnderContention) {
  auto store = SlotStore::create(4, 64).value();
  std::array<std::atomic<int>, 4> holders{};
  std::atomic<bool> shared{false};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        const std::uint32_t index = store->take();
        if (index == SlotStore::kNone) continue;
        if (holders[index].fetch_add(1) != 0) shared = true;
        holders[index].fetch_sub(1);
        store->give_back(index);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(shared);
}

TEST(Slot, ReturnsToItsPoolWhenDestroyedAndOutlivesTheHandle) {
  auto pool = std::make_unique<SlotPool>(SlotStore::create(1, 64).value());
  Slot slot = pool->take();
  EXPECT_TRUE(slot);
  EXPECT_FALSE(pool->take());
  slot = Slot{};
  slot = pool->take();
  EXPECT_TRUE(slot);
  pool.reset();
  slot.bytes()[0] = std::byte{1};  // the slab is still there
}

TEST(RegisteredMemory, PartOutsideIsNotValid) {
  std::array<std::byte, 16> bytes{};
  const RegisteredMemory memory{std::make_shared<LocalMemory>(std::span{bytes})};
  EXPECT_TRUE((Target{memory, 8, 8}.valid()));
  EXPECT_FALSE((Target{memory, 9, 8}.valid()));
  EXPECT_FALSE((Source{memory, SIZE_MAX, 2}.valid()));
  EXPECT_FALSE((Source{RegisteredMemory{}, 0, 1}.valid()));
}

}  // namespace
}  // namespace remora::detail
