/// What is late because its process was not run is told from what is late by itself.

#include "support/stall_watch.h"

#include <chrono>
#include <ctime>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>

#include "support/eventually.h"
#include "support/stand_still.h"

namespace remora::test {
namespace {

using namespace std::chrono_literals;
using Clock = StallWatch::Clock;

std::chrono::nanoseconds processor_time_of_this_thread() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds{used.tv_sec} + std::chrono::nanoseconds{used.tv_nsec};
}

TEST(StallWatch, ProcessThatIsStoppedIsNoticed) {
  StallWatch watch;
  const auto began = Clock::now();
  stand_still(700ms);
  const auto ended = Clock::now();
  EXPECT_GE(watch.within(began, ended), 500ms);
  EXPECT_EQ(watch.within(began - 4s, began - 2s), 0ns) << "there was no watch";
  EXPECT_TRUE(eventually([&] { return watch.longest() >= 500ms; }));
  EXPECT_GE(watch.within(began, ended), 500ms) << "also when it is over";
  watch.overlook(began);
  EXPECT_EQ(watch.within(began, ended), 0ns);
}

TEST(StallWatch, ThreadThatWaitsOrWorksIsNoStall) {
  std::mutex mutex;
  std::unique_lock held{mutex};
  std::thread waits{[&] { const std::lock_guard lock{mutex}; }};
  bool told_apart = false;
  // A host that has no processor for the watch spoils an attempt; a watch that takes work for a
  // stall spoils all of them.
  for (int attempt = 0; attempt < 10 && !told_apart; ++attempt) {
    const StallWatch watch;
    const auto began = Clock::now();
    const auto used = processor_time_of_this_thread();
    while (processor_time_of_this_thread() - used < 600ms) {
    }
    const auto ended = Clock::now();
    const auto not_run = ended - began - (processor_time_of_this_thread() - used);
    told_apart = watch.within(began, ended) <= not_run + 100ms;
  }
  EXPECT_TRUE(told_apart);
  held.unlock();
  waits.join();
}

}  // namespace
}  // namespace remora::test
