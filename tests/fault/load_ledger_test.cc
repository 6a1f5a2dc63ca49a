/// What a load's process was not run excuses its operations, and nothing else does.

#include "load_ledger.h"

#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <remora/result.h>

#include "support/stall_watch.h"
#include "support/stand_still.h"

namespace remora::fault {
namespace {

using namespace std::chrono_literals;
using test::StallWatch;
using testing::HasSubstr;

TEST(LoadLedgerStalls, OnlyWhatTheProcessWasNotRunIsExcused) {
  const StallWatch watch;
  LoadOptions options;
  options.stalls = &watch;
  LoadLedger ledger{options};
  const auto began = StallWatch::Clock::now();
  test::stand_still(1200ms);
  // Late by 2.7 s, of which 1.2 s were none of its doing: less than the grace is left.
  ledger.ended(LoadKind::kRead, Error{Code::kTimedOut, "read"}, began - options.deadline - 1500ms);
  LoadReport report;
  ledger.fill(report);
  EXPECT_EQ(report.violations_total, 0U);
  EXPECT_EQ(ledger.excused(), 1U);
  EXPECT_GT(report.longest_overrun_ms, 2500U);
  // Late by 4 s more than it stood still, also where the same stall is deducted.
  ledger.ended(LoadKind::kRead, Error{Code::kTimedOut, "read"}, began - options.deadline - 4s);
  ledger.fill(report);
  ASSERT_EQ(report.violations_total, 1U);
  EXPECT_THAT(report.violations.back(), HasSubstr("I3: a read"));
  EXPECT_THAT(report.violations.back(), HasSubstr("stood still"));
}

}  // namespace
}  // namespace remora::fault
