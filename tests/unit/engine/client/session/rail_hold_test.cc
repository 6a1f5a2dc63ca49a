#include "client/session/rail_hold.h"

#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>

namespace remora::detail {
namespace {

using std::chrono::milliseconds;

TEST(RailHold, FirstHoldIsDueAtOnceAndShort) {
  const RailHold hold{};
  EXPECT_TRUE(hold.is_due(Clock::now()));
  EXPECT_EQ(hold.time(), RailHold::kFirstTime);
}

TEST(RailHold, PauseAndTimeGrowWhileHoldsFail) {
  RailHold hold;
  Clock::time_point now = Clock::now();
  milliseconds pause = 4 * RailHold::kFirstTime;
  for (int i = 0; i < 20; ++i) {
    hold.ended(false, now);
    EXPECT_FALSE(hold.is_due(now + pause - milliseconds{1})) << i;
    now += pause;
    EXPECT_TRUE(hold.is_due(now)) << i;
    EXPECT_EQ(hold.time(), std::min(pause / 2, RailHold::kMaxTime)) << i;
    pause = std::min(2 * pause, RailHold::kMaxPause);
  }
  EXPECT_EQ(pause, RailHold::kMaxPause);
}

TEST(RailHold, HoldThatSucceededEndsThePause) {
  RailHold hold;
  const Clock::time_point now = Clock::now();
  hold.ended(false, now);
  hold.ended(true, now);
  EXPECT_TRUE(hold.is_due(now));
  EXPECT_EQ(hold.time(), RailHold::kFirstTime);
}

TEST(RailHold, ResetMakesTheNextHoldAFirstOne) {
  RailHold hold;
  const Clock::time_point now = Clock::now();
  hold.ended(false, now);
  EXPECT_FALSE(hold.is_due(now));
  hold.reset();
  EXPECT_TRUE(hold.is_due(now));
}

}  // namespace
}  // namespace remora::detail
