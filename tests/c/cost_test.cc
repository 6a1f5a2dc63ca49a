// What an operation costs more through the C API than in C++, in instructions, in batches of 32.

#include <algorithm>
#include <cstdio>
#include <gtest/gtest.h>

#include "support/callgrind.h"
#include "support/runtime_dir.h"

namespace remora::test {
namespace {

TEST(CApiCost, StaysWithinItsBound) {
  if (const std::string reason = why_uncountable(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr double kBound = 40;
  const RuntimeDir runtime_dir;
  // Each count has what the server's threads do meanwhile: the least of three differences.
  double cost = kBound + 1;
  for (int i = 0; i < 3 && cost > kBound; ++i) {
    const auto in_c = instructions_a_round(QUEUE_COST_C, 67'200);
    const auto in_cc = instructions_a_round(QUEUE_COST_CC, 67'200);
    ASSERT_TRUE(in_c && in_cc) << "callgrind said nothing";
    std::printf("%.1f instructions in C, %.1f in C++: %.1f\n", *in_c, *in_cc, *in_c - *in_cc);
    cost = std::min(cost, *in_c - *in_cc);
  }
  EXPECT_LE(cost, kBound);
}

}  // namespace
}  // namespace remora::test
