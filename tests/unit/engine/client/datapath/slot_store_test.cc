#include "client/datapath/slot_store.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <gtest/gtest.h>
#include <set>
#include <thread>
#include <vector>

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

TEST(SlotStoreDeathTest, SlotThatIsNotTakenIsNotGivenBack) {
  if constexpr (kHotAssertions) {
    // Each process makes its own store: one of the parent does nothing in a child.
    EXPECT_DEATH(
        {
          auto store = SlotStore::create(2, 64).value();
          const std::uint32_t index = store->take();
          store->give_back(index);
          store->give_back(index);
        },
        "a bug in Remora: a slot that was taken is given back");
    EXPECT_DEATH(
        {
          auto store = SlotStore::create(2, 64).value();
          const std::uint32_t first = store->take();
          const std::uint32_t second = store->take();
          store->give_back(first);
          store->chain(second, first);
        },
        "a bug in Remora: only slots that were taken are");
  }
}

TEST(LocalMemoryDeathTest, UseThatHasNotBegunDoesNotEnd) {
  LocalMemory memory{std::span<std::byte>{}, LocalMemory::Handles::kCopied};
  memory.begin_use();
  memory.end_use();
  if constexpr (kHotAssertions) {
    EXPECT_DEATH(memory.end_use(), "a bug in Remora: a use of memory ends once");
  }
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

TEST(SlotStore, NoSlotOfAChainIsOutTwiceUnderContention) {
  auto store = SlotStore::create(6, 64).value();
  std::array<std::atomic<int>, 6> holders{};
  std::atomic<bool> shared{false};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) {
        const SlotStore::Taken taken = store->take_chain(3);
        std::array<std::uint32_t, 3> indexes{};
        std::uint32_t index = taken.first;
        for (std::uint32_t n = 0; n < taken.count; ++n) {
          indexes[n] = index;
          if (holders[index].fetch_add(1) != 0) shared = true;
          index = store->unchain(index);
        }
        for (std::uint32_t n = 0; n < taken.count; ++n) {
          holders[indexes[n]].fetch_sub(1);
          store->give_back(indexes[n]);
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(shared);
  const SlotStore::Taken all = store->take_chain(7);
  EXPECT_EQ(all.count, 6U) << "all slots were given back";
  std::uint32_t index = all.first;
  for (std::uint32_t n = 0; n < all.count; ++n) {
    const std::uint32_t next = store->unchain(index);
    store->give_back(index);
    index = next;
  }
}

}  // namespace
}  // namespace remora::detail
