// What a record costs in instructions: the bound is part of the contract, and unlike time it does
// not depend on the machine's load.

#include <gtest/gtest.h>
#include <string>
#include <utility>

#include "support/callgrind.h"

namespace remora::test {
namespace {

class RecordCost : public ::testing::TestWithParam<std::pair<std::string, double>> {};

TEST_P(RecordCost, StaysWithinItsBound) {
  if (const std::string reason = why_uncountable(); !reason.empty()) GTEST_SKIP() << reason;
  const auto [what, bound] = GetParam();
  const auto per_round = [](const std::string& kind) {
    return instructions_a_round(METRICS_COST " " + kind, 30'000);
  };
  const auto loop = per_round("none");
  const auto loop_and_record = per_round(what);
  ASSERT_TRUE(loop && loop_and_record) << "callgrind said nothing";
  const double cost = *loop_and_record - *loop;
  RecordProperty("instructions", std::to_string(cost));
  std::printf("%s: %.2f instructions\n", what.c_str(), cost);
  EXPECT_LE(cost, bound);
}

INSTANTIATE_TEST_SUITE_P(All, RecordCost,
                         ::testing::Values(std::pair{std::string{"add"}, 4.0},
                                           std::pair{std::string{"observe"}, 15.0},
                                           std::pair{std::string{"observe_n"}, 17.0},
                                           std::pair{std::string{"recorder"}, 25.0}),
                         [](const auto& test) { return test.param.first; });

}  // namespace
}  // namespace remora::test
