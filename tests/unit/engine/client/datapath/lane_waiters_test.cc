#include "client/datapath/lane_waiters.h"

#include <chrono>
#include <gtest/gtest.h>

namespace remora::detail {
namespace {

TEST(LaneWaiters, OneCallerAtATimeHasTheDescriptor) {
  LaneWaiters waiters;
  EXPECT_TRUE(waiters.take_descriptor());
  EXPECT_FALSE(waiters.take_descriptor());
  waiters.give_descriptor_back();
  EXPECT_TRUE(waiters.take_descriptor());
  waiters.give_descriptor_back();
}

TEST(LaneWaiters, WakeBeforeTheSleepEndsIt) {
  LaneWaiters waiters;
  const std::uint64_t before = waiters.begin_wait();
  waiters.wake();
  // Returns although the deadline is far away.
  waiters.sleep_until_woken(before, Clock::now() + std::chrono::hours{1});
  waiters.end_wait();
}

TEST(LaneWaitersDeathTest, DescriptorThatWasNotTakenIsNotGivenBack) {
  LaneWaiters waiters;
  EXPECT_DEATH(waiters.give_descriptor_back(), "a bug in Remora: the caller that took the desc");
}

TEST(LaneWaitersDeathTest, WaitThatWasNotBegunDoesNotEnd) {
  LaneWaiters waiters;
  EXPECT_DEATH(waiters.end_wait(), "a bug in Remora: a caller that has begun to wait ends its");
}

}  // namespace
}  // namespace remora::detail
