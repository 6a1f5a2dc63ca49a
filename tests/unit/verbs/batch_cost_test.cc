// What Batch and CompletionQueue cost over the same calls by hand, in instructions a request and a
// completion, in chains of 64. Of what a batch costs more, 9 are the request's (its bounds, its
// room in the storage) and some 50 the chain's; "cut" are two slices cut and checked for each
// request.

#include <gtest/gtest.h>
#include <string>

#include "support/callgrind.h"

namespace remora::test {
namespace {

struct Pair {
  std::string hand;
  std::string object;
  double more;
};

class BatchCost : public ::testing::TestWithParam<Pair> {};

TEST_P(BatchCost, IsNextToHandWrittenCode) {
  if (const std::string reason = why_uncountable(); !reason.empty()) GTEST_SKIP() << reason;
  const auto cost = [](const std::string& mode) {
    return instructions_a_round(BATCH_COST " " + mode, 96'000);
  };
  const auto hand = cost(GetParam().hand);
  const auto object = cost(GetParam().object);
  ASSERT_TRUE(hand && object) << "callgrind said nothing";
  std::printf("%s: %.1f instructions, %s: %.1f\n", GetParam().hand.c_str(), *hand,
              GetParam().object.c_str(), *object);
  EXPECT_LE(*object, *hand + GetParam().more);
}

INSTANTIATE_TEST_SUITE_P(All, BatchCost,
                         ::testing::Values(Pair{"hand", "batch", 10}, Pair{"hand", "batch-cut", 35},
                                           Pair{"hand-gather", "batch-gather", 40},
                                           Pair{"hand-poll", "batch-poll", 2}),
                         [](const auto& test) {
                           std::string name = test.param.object;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace remora::test
