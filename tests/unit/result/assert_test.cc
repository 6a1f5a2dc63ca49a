#include <gtest/gtest.h>

#include <remora/assert.h>

namespace remora {
namespace {

TEST(AssertDeathTest, BrokenInvariantIsPrintedWithItsPlaceAndEndsTheProcess) {
  const int leases = -1;
  EXPECT_DEATH(REMORA_ASSERT(leases >= 0, "leases are never negative"),
               "a bug in Remora: leases are never negative \\(.*assert_test\\.cc:[0-9]+\\)");
}

TEST(Assert, KeptInvariantEvaluatesItsConditionOnce) {
  int evaluated = 0;
  REMORA_ASSERT(++evaluated == 1, "the first evaluation");
  EXPECT_EQ(evaluated, 1);
}

TEST(Assert, IsOneStatement) {
  bool other = false;
  if (other)
    REMORA_ASSERT(!other, "never reached");
  else
    other = true;
  EXPECT_TRUE(other);
}

TEST(AssertDeathTest, HotOneIsTestedOnlyWithASanitizer) {
  if constexpr (detail::kHotAssertions) {
    EXPECT_DEATH(REMORA_ASSERT_HOT(false, "left out elsewhere"), "a bug in Remora: left out");
  } else {
    REMORA_ASSERT_HOT(false, "left out elsewhere");
  }
}

TEST(Assert, HotOneIsOneStatement) {
  bool other = false;
  if (other)
    REMORA_ASSERT_HOT(!other, "never reached");
  else
    other = true;
  EXPECT_TRUE(other);
}

}  // namespace
}  // namespace remora
