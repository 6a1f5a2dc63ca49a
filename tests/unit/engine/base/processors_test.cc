#include "base/processors.h"

#include <gtest/gtest.h>
#include <string>

namespace remora::detail {
namespace {

TEST(Processors, RangesAndSingleOnesInAnyOrder) {
  EXPECT_EQ(parse_processors("8,0-3,2").value(), (Processors{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_processors("5").value(), Processors{5});
  EXPECT_EQ(to_text({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  EXPECT_EQ(to_text({}), "");
}

TEST(Processors, AnythingElseIsInvalidAndNamesThePart) {
  for (const char* text : {"", ",", "1,", "3-1", "a", "1-", "-1", "0x3", "1 ", "0-3,eight", "70000",
                           "1-2-3", "99999999999", "Auto"}) {
    const auto parsed = parse_processors(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument) << text;
  }
  EXPECT_NE(parse_processors("0-3,eight").error().message().find("eight"), std::string::npos);
}

}  // namespace
}  // namespace remora::detail
