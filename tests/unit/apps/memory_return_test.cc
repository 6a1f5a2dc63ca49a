#include "server/memory_return.h"

#include <gtest/gtest.h>

namespace remora::apps {
namespace {

class MemoryReturnTest : public testing::Test {
 protected:
  /// How often `count` looks at so many sessions return memory.
  unsigned trims_of(std::uint64_t sessions, unsigned count) {
    const unsigned before = trims_;
    for (unsigned i = 0; i < count; ++i) memory_.look(sessions);
    return trims_ - before;
  }

 private:
  unsigned trims_ = 0;
  MemoryReturn memory_{[this] { ++trims_; }};
};

TEST_F(MemoryReturnTest, NothingIsReturnedWhileSessionsStay) {
  EXPECT_EQ(trims_of(0, 10), 0U);
  EXPECT_EQ(trims_of(400, 10), 0U);
}

TEST_F(MemoryReturnTest, MemoryIsReturnedAfterManyHaveLeft) {
  trims_of(400, 2);
  EXPECT_EQ(trims_of(0, 1), 0U) << "they are leaving";
  EXPECT_EQ(trims_of(0, 100), MemoryReturn::kLooks) << "and then no more";
}

TEST_F(MemoryReturnTest, NothingIsReturnedWhileSessionsComeAndGo) {
  trims_of(400, 2);
  for (std::uint64_t sessions = 100; sessions > 0; --sessions) EXPECT_EQ(trims_of(sessions, 1), 0U);
}

TEST_F(MemoryReturnTest, FewSessionsAreNotWorthIt) {
  trims_of(MemoryReturn::kMinLeft - 1, 2);
  EXPECT_EQ(trims_of(0, 10), 0U);
}

TEST_F(MemoryReturnTest, LessThanAQuarterIsNotWorthIt) {
  trims_of(400, 2);
  EXPECT_EQ(trims_of(301, 10), 0U);
  EXPECT_EQ(trims_of(300, 10), MemoryReturn::kLooks);
}

TEST_F(MemoryReturnTest, EachTimeThatManyLeaveCounts) {
  for (int round = 0; round < 3; ++round) {
    trims_of(400, 2);
    EXPECT_EQ(trims_of(100, 10), MemoryReturn::kLooks);
  }
}

}  // namespace
}  // namespace remora::apps
