#include "client/session/transition_mutex.h"

#include <gtest/gtest.h>
#include <thread>

namespace remora::detail {
namespace {

TEST(TransitionMutex, OnlyTheThreadThatHasLockedItHoldsIt) {
  TransitionMutex mutex;
  EXPECT_FALSE(mutex.held_by_this_thread());
  mutex.lock();
  EXPECT_TRUE(mutex.held_by_this_thread());
  bool held_by_other = true;
  std::thread{[&] { held_by_other = mutex.held_by_this_thread(); }}.join();
  EXPECT_FALSE(held_by_other);
  mutex.unlock();
  EXPECT_FALSE(mutex.held_by_this_thread());
}

TEST(TransitionMutex, BrokenLaneIsTakenOnce) {
  TransitionMutex mutex;
  mutex.lock();
  EXPECT_FALSE(mutex.take_broken_lane());
  mutex.note_broken_lane();
  EXPECT_TRUE(mutex.take_broken_lane());
  EXPECT_FALSE(mutex.take_broken_lane());
  mutex.unlock();
}

TEST(TransitionMutexDeathTest, UnlockWithABrokenLaneLeftEndsTheProcess) {
  EXPECT_DEATH(
      {
        TransitionMutex mutex;
        mutex.lock();
        mutex.note_broken_lane();
        mutex.unlock();
      },
      "a bug in Remora: a transition acts on a lane that breaks meanwhile");
}

TEST(TransitionMutexDeathTest, AssertHeldOfAThreadThatDoesNotHoldItEndsTheProcess) {
  TransitionMutex mutex;
  EXPECT_DEATH(mutex.assert_held(), "a bug in Remora: a function of a transition runs in its");
}

}  // namespace
}  // namespace remora::detail
