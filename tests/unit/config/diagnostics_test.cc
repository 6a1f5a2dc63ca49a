#include <gtest/gtest.h>
#include <sstream>

#include <remora/config/diagnostics.h>

namespace remora::config {
namespace {

TEST(Diagnostic, PrintsFileLineColumnKeyMessage) {
  EXPECT_EQ((Diagnostic{"a.yaml", 3, 9, "pool.size", "too small"}.to_string()),
            "a.yaml:3:9: pool.size: too small");
}

TEST(Diagnostic, LeavesOutWhatItDoesNotKnow) {
  EXPECT_EQ((Diagnostic{"a.yaml", 0, 0, "", "a directory"}.to_string()), "a.yaml: a directory");
  EXPECT_EQ((Diagnostic{"a.yaml", 2, 0, "", "odd"}.to_string()), "a.yaml:2: odd");
  EXPECT_EQ((Diagnostic{"", 0, 0, "pool.size", "required"}.to_string()), "pool.size: required");
}

TEST(Diagnostic, EscapesTheNameOfItsFile) {
  EXPECT_EQ((Diagnostic{"a\x1b[2J\n.yaml", 1, 2, "", "odd"}.to_string()),
            R"(a\x1b[2J\n.yaml:1:2: odd)");
}

TEST(Diagnostics, SortsByPlaceAndKeepsTheOrderOfEquals) {
  Diagnostics list;
  list.add({"f", 2, 1, "", "c"});
  list.add({"f", 1, 5, "", "b"});
  list.add({"f", 1, 5, "", "b2"});
  list.add({"f", 1, 2, "", "a"});
  list.sort_by_place();
  std::ostringstream out;
  out << list;
  EXPECT_EQ(out.str(), "f:1:2: a\nf:1:5: b\nf:1:5: b2\nf:2:1: c\n");
}

TEST(Diagnostics, KeepsAHundredAndCountsTheRest) {
  Diagnostics list;
  for (std::size_t i = 0; i < Diagnostics::kMax + 3; ++i) list.add({"f", i + 1, 1, "", "x"});
  EXPECT_EQ(list.size(), Diagnostics::kMax);
  EXPECT_EQ(list.dropped(), 3U);
  EXPECT_TRUE(list.to_string().ends_with("f:100:1: x\nand 3 more\n"));
}

TEST(Diagnostics, EmptyPrintsNothing) {
  EXPECT_TRUE(Diagnostics{}.empty());
  EXPECT_EQ(Diagnostics{}.to_string(), "");
}

}  // namespace
}  // namespace remora::config
