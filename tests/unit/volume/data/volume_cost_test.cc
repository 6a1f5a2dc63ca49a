// What a volume adds to an operation of a region, in instructions.

#include <algorithm>
#include <cstdio>
#include <gtest/gtest.h>
#include <limits>
#include <string>

#include "support/callgrind.h"

namespace remora::test {
namespace {

struct Added {
  std::string path;  ///< "volume": one group on each of three servers; "volume_rows": two groups
  std::string face;  ///< "queue": reads in batches of 32, taken, submitted and handed out; "alone":
                     ///< one synchronous read; "queue_write", "alone_write": the same for writes
  double bound;
};

class VolumeCost : public ::testing::TestWithParam<Added> {};

TEST_P(VolumeCost, StaysWithinItsBound) {
  if (const std::string reason = why_uncountable(); !reason.empty()) GTEST_SKIP() << reason;
  const Added& added = GetParam();
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3 && least > added.bound; ++i) {
    const auto region = instructions_a_round(VOLUME_COST " region " + added.face, 35'200);
    const auto volume =
        instructions_a_round(VOLUME_COST " " + added.path + " " + added.face, 35'200);
    ASSERT_TRUE(region && volume) << "callgrind said nothing";
    std::printf("%s %s: %.0f instructions of a region, %.0f of a volume\n", added.path.c_str(),
                added.face.c_str(), *region, *volume);
    least = std::min(least, *volume - *region);
  }
  EXPECT_LE(least, added.bound);
}

INSTANTIATE_TEST_SUITE_P(All, VolumeCost,
                         // instructions.md of tests/bench has the parts. Goal: 120. About 40 in a
                         // queue are what three queues of the engine cost more than one, for each
                         // batch. A lane that changes its region looks it up among those of its
                         // queue (Queue::select). Writes take the same way as reads.
                         ::testing::Values(Added{"volume", "queue", 130},
                                           Added{"volume", "queue_write", 130},
                                           Added{"volume_rows", "queue", 220},
                                           Added{"volume", "alone", 120},
                                           Added{"volume", "alone_write", 120}),
                         [](const auto& test) { return test.param.path + "_" + test.param.face; });

}  // namespace
}  // namespace remora::test
