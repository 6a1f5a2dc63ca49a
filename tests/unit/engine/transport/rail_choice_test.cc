/// What an application may ask of the rails of a session.

#include "transport/rail_choice.h"

#include <gtest/gtest.h>

namespace remora::transport {
namespace {

TEST(RailChoice, IsANumberAutoOrNames) {
  EXPECT_FALSE(RailChoice::parse("1").value().several());
  EXPECT_EQ(RailChoice::parse("2").value().max, 2U);
  EXPECT_EQ(RailChoice::parse("auto").value().max, RailChoice::kMaxRails);
  const RailChoice named = RailChoice::parse("mlx5_0,mlx5_1").value();
  EXPECT_EQ(named.max, 2U);
  EXPECT_TRUE(named.allows("mlx5_1"));
  EXPECT_FALSE(named.allows("mlx5_2"));
  EXPECT_FALSE(RailChoice::parse("mlx5_0").value().several()) << "one device";
}

TEST(RailChoice, RefusesEverythingElse) {
  for (const char* const text :
       {"", "0", "9", "-1", "a,", ",a", "a,a", "a b", "a,b,c,d,e,f,g,h,i", "rxe0/1"}) {
    const auto parsed = RailChoice::parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace remora::transport
