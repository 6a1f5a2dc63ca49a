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

TEST(Goal, ReadsLeastMostAndNone) {
  Goal goal;
  ASSERT_TRUE(Goal::parse(">=0.9", goal));
  EXPECT_EQ(goal.ratio, 0.9);
  EXPECT_FALSE(goal.at_most);
  ASSERT_TRUE(Goal::parse("<=1.2", goal));
  EXPECT_EQ(goal.ratio, 1.2);
  EXPECT_TRUE(goal.at_most);
  ASSERT_TRUE(Goal::parse("2", goal));
  EXPECT_EQ(goal.ratio, 2);
  ASSERT_TRUE(Goal::parse("-", goal));
  EXPECT_EQ(goal.ratio, 0);
}

TEST(Goal, OtherTextIsRefused) {
  Goal goal;
  for (const char* text : {"", ">=", "x", "1.2x", "-1", "0"})
    EXPECT_FALSE(Goal::parse(text, goal)) << text;
}

TEST(Goal, IsMetWhenTheIntervalReachesIt) {
  const Estimate found{1, 0.9, 1.1, 15};
  EXPECT_TRUE((Goal{1.1, false}.met(found)));
  EXPECT_FALSE((Goal{1.11, false}.met(found)));
  EXPECT_TRUE((Goal{0.9, true}.met(found)));
  EXPECT_FALSE((Goal{0.89, true}.met(found)));
}

TEST(Table, SaysRatioOfPairsAndWhetherTheGoalIsMet) {
  const Row met{"read", "memcpy", "MB/s", {0.8, false}, std::vector<Pair>(15, Pair{90, 100})};
  const Row missed{"write", "memcpy", "ns", {0.8, true}, std::vector<Pair>(15, Pair{90, 100})};
  const Row none{"add", "x", "ns", {}, std::vector<Pair>(15, Pair{90, 100})};
  const std::string text = table({met, missed, none});
  EXPECT_NE(text.find("| read | memcpy | MB/s | 15 | 90.0 | 100.0 | 0.90 | 0.90 - 0.90 | "
                      ">= 0.8 met |"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("| <= 0.8 missed |"), std::string::npos) << text;
  EXPECT_NE(text.find("| 0.90 - 0.90 |  |"), std::string::npos) << text;
}

}  // namespace
}  // namespace remora::bench
