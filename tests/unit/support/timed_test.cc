/// A limit on time is kept by what stood still, and not by what hangs.

#include "support/timed.h"

#include <chrono>
#include <ctime>
#include <gtest/gtest.h>
#include <string>

#include "support/stand_still.h"

namespace remora::test {
namespace {

using namespace std::chrono_literals;

/// Runs, so that none of it is a stall, for so much of the processor's time.
void work_for(std::chrono::nanoseconds time) {
  const auto used = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds{now.tv_sec} + std::chrono::nanoseconds{now.tv_nsec};
  };
  const auto began = used();
  while (used() - began < time) {
  }
}

TEST(Timed, OperationWithinItsLimitPasses) {
  const Timed timed;
  EXPECT_TRUE(timed.took_at_most(1h));
  EXPECT_TRUE(timed.took_at_most(1h, timed.began()));
}

TEST(Timed, OperationThatIsLateWithoutAStallFails) {
  const Timed timed;
  work_for(1s);
  EXPECT_FALSE(timed.took_at_most(500ms));
}

TEST(Timed, FailureSaysTimeStallAndLimit) {
  const Timed timed;
  // What was before the watch is no stall, whatever the host did.
  const auto late = timed.took_at_most(5s, timed.began() - 10s);
  ASSERT_FALSE(late);
  const std::string text = late.message();
  EXPECT_NE(text.find("took 1"), std::string::npos) << text;
  EXPECT_NE(text.find("stood still for "), std::string::npos) << text;
  EXPECT_NE(text.find("the limit is 5000 ms"), std::string::npos) << text;
}

TEST(Timed, OperationThatIsLateForAStallAlonePasses) {
  const Timed timed;
  stand_still(1500ms);
  EXPECT_TRUE(timed.took_at_most(1s));
}

TEST(Timed, StallHidesNoMoreThanItself) {
  const Timed timed;
  stand_still(1s);
  EXPECT_TRUE(timed.took_at_most(12s, timed.began() - 10s)) << "11 s, of which 1 s is a stall";
  EXPECT_FALSE(timed.took_at_most(9s, timed.began() - 10s)) << "10 s of it were no stall";
}

TEST(Timed, StallBeforeAnOperationExcusesNothing) {
  const Timed timed;
  stand_still(1s);
  const auto began = Timed::Clock::now();
  work_for(1s);
  EXPECT_FALSE(timed.took_at_most(500ms, began));
}

}  // namespace
}  // namespace remora::test
