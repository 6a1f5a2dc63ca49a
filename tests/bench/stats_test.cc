#include "stats.h"

#include <gtest/gtest.h>
#include <numeric>

namespace remora::bench {
namespace {

TEST(Estimate, NothingIsAllZero) { EXPECT_EQ(estimate({}).count, 0U); }

TEST(Estimate, OneValueIsItsOwnInterval) {
  const Estimate found = estimate({3});
  EXPECT_EQ(found.median, 3);
  EXPECT_EQ(found.low, 3);
  EXPECT_EQ(found.high, 3);
}

TEST(Estimate, EvenCountHasTheMeanOfTheMiddle) { EXPECT_EQ(estimate({4, 1, 2, 3}).median, 2.5); }

TEST(Estimate, OfFifteenValuesTheFourthAndTwelfthBoundTheMedian) {
  // The usual table of order statistics: n = 15, ranks 4 and 12, confidence 96.5 %.
  std::vector<double> values(15);
  std::iota(values.begin(), values.end(), 1);
  const Estimate found = estimate(values);
  EXPECT_EQ(found.median, 8);
  EXPECT_EQ(found.low, 4);
  EXPECT_EQ(found.high, 12);
}

TEST(Estimate, OfTwentyFiveValuesTheEighthAndEighteenthBoundTheMedian) {
  std::vector<double> values(25);
  std::iota(values.begin(), values.end(), 1);
  EXPECT_EQ(estimate(values).low, 8);
  EXPECT_EQ(estimate(values).high, 18);
}

TEST(Estimate, OutliersDoNotMoveTheMedian) {
  EXPECT_EQ(estimate({1, 1, 1, 1, 1, 1, 1, 1e9, 1e9}).median, 1);
}

TEST(Table, SaysRatioOfPairsAndWhetherTheGoalIsMet) {
  const Row met{"read", std::vector<Pair>(15, Pair{90, 100})};
  const Row missed{"write", std::vector<Pair>(15, Pair{50, 100})};
  const std::string text = table({met, missed}, "peer", "MB/s", 0.8);
  EXPECT_NE(text.find("| read | 15 | 90.0 | 100.0 | 0.900 | 0.900 - 0.900 | 0.800 met |"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("0.800 missed |"), std::string::npos) << text;
}

}  // namespace
}  // namespace remora::bench
