// What an operation costs in instructions, from the call of the user to the provider and back. The
// bounds hold what has been reached, with a twentieth of slack; lower them with what lowers the
// cost.

#include <gtest/gtest.h>
#include <string>

#include "support/callgrind.h"

namespace remora::test {
namespace {

struct Cost {
  std::string path;  ///< posted: with a provider that does nothing; direct: memory of this process
  std::string face;  ///< batched: a queue in batches of 32 with slots; alone: one synchronous read
  double bound;
};

class PathCost : public ::testing::TestWithParam<Cost> {};

TEST_P(PathCost, StaysWithinItsBound) {
  if (const std::string reason = why_uncountable(); !reason.empty()) GTEST_SKIP() << reason;
  const Cost& cost = GetParam();
  const auto counted =
      instructions_a_round(PATH_COST " " + cost.path + " " + cost.face, 3200, 9600);
  ASSERT_TRUE(counted) << "callgrind said nothing";
  std::printf("%s %s: %.0f instructions\n", cost.path.c_str(), cost.face.c_str(), *counted);
  EXPECT_LE(*counted, cost.bound);
}

INSTANTIATE_TEST_SUITE_P(All, PathCost,
                         ::testing::Values(Cost{"posted", "batched", 600},
                                           Cost{"posted", "alone", 1400},
                                           Cost{"direct", "batched", 450},
                                           Cost{"direct", "alone", 450}),
                         [](const auto& test) { return test.param.path + "_" + test.param.face; });

}  // namespace
}  // namespace remora::test
