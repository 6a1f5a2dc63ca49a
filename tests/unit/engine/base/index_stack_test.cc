#include "base/index_stack.h"

#include <array>
#include <atomic>
#include <gtest/gtest.h>
#include <set>
#include <thread>
#include <vector>

namespace remora::detail {
namespace {

TEST(IndexStack, EveryIndexOnceThenNone) {
  IndexStack free{3};
  std::set<std::uint32_t> taken;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(taken.insert(free.take()).second);
  EXPECT_EQ(*taken.rbegin(), 2U);
  EXPECT_EQ(free.take(), IndexStack::kNone);
  free.give_back(1);
  EXPECT_EQ(free.take(), 1U);
  EXPECT_EQ(free.take(), IndexStack::kNone);
  EXPECT_EQ(IndexStack{0}.take(), IndexStack::kNone);
}

TEST(IndexStackDeathTest, IndexThatIsNotTakenIsNotGivenBack) {
  IndexStack free{2};
  const std::uint32_t index = free.take();
  free.give_back(index);
  if constexpr (kHotAssertions) {
    EXPECT_DEATH(free.give_back(index), "a bug in Remora: a place that was taken is given back");
    EXPECT_DEATH(free.give_back(2), "a bug in Remora: only a place of the table is given back");
  }
}

TEST(IndexStack, NoIndexIsOutTwiceUnderContention) {
  IndexStack free{4};
  std::array<std::atomic<int>, 4> holders{};
  std::atomic<bool> shared{false};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        const std::uint32_t index = free.take();
        if (index == IndexStack::kNone) continue;
        if (holders[index].fetch_add(1) != 0) shared = true;
        holders[index].fetch_sub(1);
        free.give_back(index);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(shared);
}

}  // namespace
}  // namespace remora::detail
