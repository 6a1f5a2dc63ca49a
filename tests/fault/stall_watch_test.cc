/// What is late because its process was not run is told from what is late by itself.

#include "stall_watch.h"

#include <chrono>
#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <remora/result.h>

#include "load_ledger.h"

namespace remora::fault {
namespace {

using namespace std::chrono_literals;
using Clock = StallWatch::Clock;
using testing::HasSubstr;

/// This process stands still for `time`.
void stand_still(std::chrono::milliseconds time) {
  const pid_t stopped = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::kill(stopped, SIGSTOP);
    ::usleep(static_cast<useconds_t>(time.count()) * 1000);
    ::kill(stopped, SIGCONT);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
}

TEST(StallWatch, ProcessThatIsStoppedIsNoticed) {
  StallWatch watch;
  const auto began = Clock::now();
  stand_still(700ms);
  const auto ended = Clock::now();
  EXPECT_GE(watch.within(began, ended), 500ms);
  EXPECT_EQ(watch.within(began - 2s, began), 0ns);
  std::this_thread::sleep_for(100ms);
  EXPECT_GE(watch.longest(), 500ms);
  EXPECT_GE(watch.within(began, ended), 500ms) << "also when it is over";
  watch.overlook(began);
  EXPECT_LT(watch.within(began, ended), 100ms);
  EXPECT_LT(watch.longest(), 500ms);
}

TEST(StallWatch, ThreadThatWaitsOrWorksIsNoStall) {
  StallWatch watch;
  std::mutex mutex;
  std::unique_lock held{mutex};
  std::thread waits{[&] { const std::lock_guard lock{mutex}; }};
  const auto began = Clock::now();
  while (Clock::now() - began < 600ms) {
  }
  EXPECT_LT(watch.within(began, Clock::now()), 500ms);
  held.unlock();
  waits.join();
}

TEST(StallWatch, LedgerExcusesOnlyWhatTheProcessWasNotRun) {
  StallWatch watch;
  LoadOptions options;
  options.stalls = &watch;
  LoadLedger ledger{options};
  const auto began = Clock::now();
  stand_still(1200ms);
  // Late by 2.7 s, of which 1.2 s were none of its doing: less than the grace is left.
  ledger.ended(LoadKind::kRead, Error{Code::kTimedOut, "read"}, began - options.deadline - 1500ms);
  LoadReport report;
  ledger.fill(report);
  EXPECT_EQ(report.violations_total, 0U);
  EXPECT_EQ(ledger.excused(), 1U);
  EXPECT_GT(report.longest_overrun_ms, 2500U);
  // As late, and later, and the process was run: neither is what it stood still before.
  const auto after = Clock::now();
  std::this_thread::sleep_for(50ms);
  ledger.ended(LoadKind::kRead, Error{Code::kTimedOut, "read"}, began - options.deadline - 4s);
  ledger.fill(report);
  ASSERT_EQ(report.violations_total, 1U);
  EXPECT_THAT(report.violations.back(), HasSubstr("I3: a read"));
  EXPECT_THAT(report.violations.back(), HasSubstr("stood still"));
  EXPECT_EQ(watch.within(after + 40ms, after + 50ms), 0ns);
}

}  // namespace
}  // namespace remora::fault
