#include "client/datapath/lane_waiters.h"

#include <chrono>
#include <gtest/gtest.h>

namespace remora::detail {
namespace {

TEST(LaneWaiters, OneCallerAtATimeHasTheDescriptor) {
  LaneSleep lane_sleep;
  LaneWaiters waiters{lane_sleep};
  EXPECT_TRUE(waiters.take_descriptor());
  EXPECT_FALSE(waiters.take_descriptor());
  waiters.give_descriptor_back();
  EXPECT_TRUE(waiters.take_descriptor());
  waiters.give_descriptor_back();
}

TEST(LaneWaiters, WakeBeforeTheSleepEndsIt) {
  LaneSleep lane_sleep;
  LaneWaiters waiters{lane_sleep};
  const std::uint64_t before = waiters.begin_wait();
  waiters.wake();
  // Returns although the deadline is far away.
  lane_sleep.on_condition(before, Clock::now() + std::chrono::hours{1});
  waiters.end_wait();
}

TEST(LaneWaiters, WakeEndsTheSleepOnTheDescriptor) {
  LaneSleep lane_sleep;
  LaneWaiters waiters{lane_sleep};
  ASSERT_TRUE(waiters.take_descriptor());
  waiters.announce_sleep();
  waiters.wake();
  lane_sleep.on_descriptor(-1, Clock::now() + std::chrono::hours{1});
  waiters.give_descriptor_back();
}

TEST(LaneWaitersDeathTest, DescriptorThatWasNotTakenIsNotGivenBack) {
  LaneSleep lane_sleep;
  LaneWaiters waiters{lane_sleep};
  EXPECT_DEATH(waiters.give_descriptor_back(), "a bug in Remora: the caller that took the desc");
}

TEST(LaneWaitersDeathTest, WaitThatWasNotBegunDoesNotEnd) {
  LaneSleep lane_sleep;
  LaneWaiters waiters{lane_sleep};
  EXPECT_DEATH(waiters.end_wait(), "a bug in Remora: a caller that has begun to wait ends its");
}

}  // namespace
}  // namespace remora::detail
