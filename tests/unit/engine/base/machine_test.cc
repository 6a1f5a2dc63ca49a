#include "base/machine.h"

#include <cstddef>
#include <gtest/gtest.h>
#include <optional>
#include <sched.h>

namespace remora::detail {
namespace {

TEST(Machine, SyntheticHasWhatItsDescriptionSays) {
  const auto it = Machine::synthetic("numa:2 core:4 pu:1").value();
  EXPECT_EQ(it.node_count(), 2U);
  EXPECT_EQ(it.processors().size(), 8U);
  EXPECT_EQ(it.processors_of(1), (Processors{4, 5, 6, 7}));
  EXPECT_EQ(it.processors_of(7), Processors{});
  EXPECT_EQ(it.node_of(3), 0U);
  EXPECT_EQ(it.node_of(99), std::nullopt);
}

TEST(Machine, HereHasTheProcessorsOfThisProcess) {
  const auto here = Machine::here();
  ASSERT_TRUE(here) << here.error();
  EXPECT_GE(here->node_count(), 1U);
  cpu_set_t set;
  ASSERT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  EXPECT_EQ(here->processors().size(), static_cast<std::size_t>(CPU_COUNT(&set)));
}

}  // namespace
}  // namespace remora::detail
