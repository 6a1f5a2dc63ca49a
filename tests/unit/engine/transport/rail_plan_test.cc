/// Which addresses of a server answer, and in which order they are tried.

#include "transport/rail_plan.h"

#include <chrono>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace remora::transport {
namespace {

using std::chrono::milliseconds;

std::string joined(const std::vector<RailAddress>& addresses) {
  std::string text;
  for (const RailAddress& each : addresses) text += (text.empty() ? "" : " ") + each.address;
  return text;
}

class RailPlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    plan_.set_first("10.0.0.1");
    plan_.learn({{"10.0.0.1", "mlx5_0"}, {"10.0.1.1", "mlx5_1"}, {"10.0.2.1", "mlx5_2"}});
  }
  RailPlan plan_{RailChoice::parse("auto").value()};
  const Clock::time_point began_{std::chrono::hours{1}};
};

TEST_F(RailPlanTest, WhatTheServerTellsNamesTheAddressOfTheUri) {
  ASSERT_EQ(plan_.in_order().size(), 3U);
  EXPECT_EQ(plan_.in_order().front().device, "mlx5_0");
  EXPECT_TRUE(plan_.is_first("10.0.0.1"));
  EXPECT_FALSE(plan_.is_first("10.0.1.1"));
}

TEST_F(RailPlanTest, AddressesThatFailedAreTriedLastAndTheOldestFailureFirst) {
  plan_.set_failed("10.0.0.1", began_);
  plan_.set_failed("10.0.1.1", began_ - milliseconds{5});
  EXPECT_EQ(joined(plan_.in_order()), "10.0.2.1 10.0.1.1 10.0.0.1");
  EXPECT_EQ(joined(plan_.up()), "10.0.2.1");
}

TEST_F(RailPlanTest, AnAddressThatFailedIsDueAfterAPause) {
  plan_.set_up("10.0.1.1", began_);
  plan_.set_failed("10.0.1.1", began_);
  EXPECT_EQ(plan_.due(began_), "");
  EXPECT_EQ(plan_.due(began_ + RailPlan::kFirstPause), "10.0.1.1");
  plan_.set_silent("10.0.1.1", began_ + RailPlan::kFirstPause);
  EXPECT_EQ(plan_.due(began_ + RailPlan::kFirstPause), "");
  EXPECT_EQ(plan_.due(began_ + 2 * RailPlan::kFirstPause), "10.0.1.1") << "asking costs nothing";
  plan_.set_failed("10.0.1.1", began_);
  EXPECT_EQ(plan_.due(began_ + RailPlan::kFirstPause), "10.0.1.1") << "another lane on it";
}

/// As of a path on which small packets pass: a connection is made each time, and breaks.
TEST_F(RailPlanTest, PauseDoublesForAnAddressThatFailsAgainUntilItHasWorkedForLong) {
  plan_.set_up("10.0.1.1", began_ - std::chrono::hours{1});
  plan_.set_failed("10.0.1.1", began_);
  plan_.set_answered("10.0.1.1");
  plan_.set_spare("10.0.1.1");  // it was found
  plan_.set_up("10.0.1.1", began_);
  plan_.set_up("10.0.1.1", began_);  // its second lane
  EXPECT_FALSE(plan_.has_failed("10.0.1.1"));
  plan_.set_failed("10.0.1.1", began_);
  EXPECT_TRUE(plan_.has_failed("10.0.1.1"));
  EXPECT_EQ(plan_.due(began_ + RailPlan::kFirstPause), "");
  EXPECT_EQ(plan_.due(began_ + 2 * RailPlan::kFirstPause), "10.0.1.1");
  plan_.set_answered("10.0.1.1");
  EXPECT_FALSE(plan_.has_failed("10.0.1.1"));
  plan_.set_failed("10.0.1.1", began_);
  EXPECT_EQ(plan_.due(began_ + 2 * RailPlan::kFirstPause), "") << "it could not be connected to";
  EXPECT_EQ(plan_.due(began_ + 4 * RailPlan::kFirstPause), "10.0.1.1");
  plan_.set_answered("10.0.1.1");
  plan_.set_up("10.0.1.1", began_);
  const Clock::time_point later = began_ + 2 * RailPlan::kMaxPause;
  plan_.set_failed("10.0.1.1", later);
  EXPECT_EQ(plan_.due(later + RailPlan::kFirstPause), "10.0.1.1");
}

TEST_F(RailPlanTest, AnAddressThatNeverWorkedIsAskedLessAndLess) {
  plan_.set_failed("10.0.1.1", began_);
  plan_.set_silent("10.0.1.1", began_);
  EXPECT_EQ(plan_.due(began_ + RailPlan::kFirstPause), "");
  EXPECT_EQ(plan_.due(began_ + 2 * RailPlan::kFirstPause), "10.0.1.1");
}

TEST_F(RailPlanTest, AnAddressThatIsNotNeededInterruptsNoSession) {
  plan_.set_failed("10.0.1.1", began_);
  plan_.set_answered("10.0.1.1");
  plan_.set_spare("10.0.1.1");
  EXPECT_FALSE(plan_.any_answered());
  EXPECT_EQ(joined(plan_.up()), "10.0.0.1 10.0.1.1 10.0.2.1");
}

TEST_F(RailPlanTest, AnAddressThatAnswersIsTakenBackOnce) {
  plan_.set_answered("10.0.1.1");
  EXPECT_FALSE(plan_.any_answered()) << "it has not failed";
  plan_.set_failed("10.0.1.1", began_);
  EXPECT_FALSE(plan_.any_answered());
  plan_.set_answered("10.0.1.1");
  EXPECT_TRUE(plan_.any_answered());
  EXPECT_EQ(joined(plan_.up()), "10.0.0.1 10.0.1.1 10.0.2.1");
  plan_.set_up("10.0.1.1", began_);
  EXPECT_FALSE(plan_.any_answered());
}

TEST_F(RailPlanTest, AnAddressThatTakesNoLanesIsLeftOutButMayBeConnectedTo) {
  EXPECT_EQ(plan_.usable().size(), 3U);
  plan_.leave_out("10.0.2.1");
  EXPECT_EQ(joined(plan_.usable()), "10.0.0.1 10.0.1.1");
  EXPECT_EQ(joined(plan_.up()), "10.0.0.1 10.0.1.1");
  EXPECT_EQ(joined(plan_.in_order()), "10.0.0.1 10.0.1.1 10.0.2.1");
  plan_.set_failed("10.0.2.1", began_);
  EXPECT_EQ(plan_.due(began_ + RailPlan::kMaxPause), "");
}

}  // namespace
}  // namespace remora::transport
