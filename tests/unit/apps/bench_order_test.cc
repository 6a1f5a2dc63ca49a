#include "cli/bench_order.h"

#include <gtest/gtest.h>
#include <vector>

namespace remora::apps {
namespace {

std::vector<std::uint64_t> first_blocks(BenchOrder order, std::size_t count) {
  std::vector<std::uint64_t> blocks;
  for (std::size_t i = 0; i < count; ++i) blocks.push_back(order.next_block());
  return blocks;
}

TEST(BenchOrder, SameSeedAndNumberGiveTheSameOrder) {
  EXPECT_EQ(first_blocks({7, 3, 1000, false}, 500), first_blocks({7, 3, 1000, false}, 500));
}

TEST(BenchOrder, NeighboursHaveAnotherOrder) {
  const auto blocks = first_blocks({7, 0, 1'000'000, false}, 100);
  for (const BenchOrder& other :
       {BenchOrder{8, 0, 1'000'000, false}, BenchOrder{7, 1, 1'000'000, false},
        BenchOrder{6, 1, 1'000'000, false}}) {
    auto others = first_blocks(other, 101);
    EXPECT_NE(blocks, std::vector<std::uint64_t>(others.begin(), others.end() - 1));
    others.erase(others.begin());  // nor the same one, a step later
    EXPECT_NE(blocks, others);
  }
}

TEST(BenchOrder, RandomBlocksReachTheWholeAndNothingElse) {
  std::vector<int> seen(17);
  for (const std::uint64_t block : first_blocks({1, 0, 17, false}, 17'000)) {
    ASSERT_LT(block, 17U);
    ++seen[block];
  }
  for (const int count : seen) EXPECT_NEAR(count, 1000, 250);
  EXPECT_EQ(first_blocks({1, 0, 1, false}, 3), (std::vector<std::uint64_t>{0, 0, 0}));
}

TEST(BenchOrder, SequentialGoesRoundFromItsOwnEighth) {
  EXPECT_EQ(first_blocks({1, 0, 3, true}, 5), (std::vector<std::uint64_t>{0, 1, 2, 0, 1}));
  EXPECT_EQ(first_blocks({1, 2, 16, true}, 3), (std::vector<std::uint64_t>{4, 5, 6}));
}

TEST(BenchOrder, MarksOfNeighbouringBlocksDiffer) {
  for (const bool sequential : {false, true}) {
    BenchOrder order{1, 0, 3, sequential};
    const std::uint64_t before = order.mark();
    order.next_block();
    EXPECT_NE(order.mark(), before);
  }
}

}  // namespace
}  // namespace remora::apps
