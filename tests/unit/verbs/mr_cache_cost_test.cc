// What a hit costs in instructions, with one range and with many: unlike time it does not depend on
// the machine's load.

#include <gtest/gtest.h>
#include <string>

#include "support/callgrind.h"

namespace remora::test {
namespace {

TEST(MrCacheCost, HitIsCheapAndFlat) {
  if (const std::string reason = why_uncountable(); !reason.empty()) GTEST_SKIP() << reason;
  const auto one = instructions_a_round(MR_CACHE_COST " 1", 30'000);
  const auto many = instructions_a_round(MR_CACHE_COST " 10000", 30'000);
  ASSERT_TRUE(one && many) << "callgrind said nothing";
  std::printf("a hit and its lease: %.1f instructions with 1 range, %.1f with 10,000\n", *one,
              *many);
  EXPECT_LE(*one, 400.0);
  EXPECT_LE(*many, 1.5 * *one);
}

}  // namespace
}  // namespace remora::test
