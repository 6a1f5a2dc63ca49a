#include "text.h"

#include <array>
#include <gtest/gtest.h>
#include <string>
#include <string_view>

namespace remora::config {
namespace {

using namespace std::string_view_literals;

TEST(EditDistance, CountsTypingMistakes) {
  EXPECT_EQ(edit_distance("port", "port"), 0U);
  EXPECT_EQ(edit_distance("prot", "port"), 1U);  // two neighbours swapped
  EXPECT_EQ(edit_distance("por", "port"), 1U);
  EXPECT_EQ(edit_distance("portt", "port"), 1U);
  EXPECT_EQ(edit_distance("pork", "port"), 1U);
  EXPECT_EQ(edit_distance("Port", "port"), 0U);
  EXPECT_EQ(edit_distance("", "port"), 4U);
  EXPECT_EQ(edit_distance("port", ""), 4U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(EditDistance, IsSymmetric) {
  constexpr std::array kWords{"address"sv, "port"sv, "huge_pages"sv, "huge-page"sv, "a"sv, ""sv};
  for (const auto a : kWords)
    for (const auto b : kWords) EXPECT_EQ(edit_distance(a, b), edit_distance(b, a)) << a << b;
}

TEST(EditDistance, LongTextsAreFarApart) {
  const std::string at_limit(64, 'a');
  const std::string beyond(65, 'a');
  EXPECT_EQ(edit_distance(at_limit, at_limit), 0U);
  EXPECT_GT(edit_distance(beyond, beyond), 1'000'000U);
}

TEST(Nearest, OnlyWhenNearEnough) {
  constexpr std::array kKeys{"size"sv, "piece"sv, "huge_pages"sv, "populate"sv};
  EXPECT_EQ(nearest("sise", kKeys), "size");
  EXPECT_EQ(nearest("pieces", kKeys), "piece");
  EXPECT_EQ(nearest("hugepages", kKeys), "huge_pages");
  EXPECT_EQ(nearest("HugePages", kKeys), "huge_pages");
  EXPECT_EQ(nearest("colour", kKeys), "");
  EXPECT_EQ(nearest("", kKeys), "");
}

TEST(FindInvalidUtf8, AcceptsEveryLength) {
  EXPECT_FALSE(find_invalid_utf8(""));
  EXPECT_FALSE(find_invalid_utf8("a\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80"));
  EXPECT_FALSE(find_invalid_utf8("\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"));
}

TEST(FindInvalidUtf8, RefusesWhatRfc3629Refuses) {
  for (const auto text :
       {"ab\x80"sv, "ab\xc0\x80"sv, "ab\xc1\xbf"sv, "ab\xe0\x9f\xbf"sv, "ab\xed\xa0\x80"sv,
        "ab\xf0\x8f\xbf\xbf"sv, "ab\xf4\x90\x80\x80"sv, "ab\xf5\x80\x80\x80"sv, "ab\xff"sv,
        "ab\xc3"sv, "ab\xe2\x82"sv, "ab\xf0\x9f\x98"sv, "ab\xc3\x28"sv})
    EXPECT_EQ(find_invalid_utf8(text), 2U);
}

TEST(Printable, EscapesWhatATerminalObeys) {
  EXPECT_EQ(printable("plain \\ text \xc3\xa9"), "plain \\ text \xc3\xa9");
  EXPECT_EQ(printable("a\nb\tc\rd"), R"(a\nb\tc\rd)");
  EXPECT_EQ(printable("\x1b[2J\x7f"), R"(\x1b[2J\x7f)");
  EXPECT_EQ(printable("\0"sv), R"(\x00)");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J \xc2\xa0"),
            "\\xc2\\x9b2J \xc2\xa0")
      << "C1 is CSI, U+00A0 a space";
  EXPECT_EQ(printable("\x9b\xff\xe2\x82"), R"(\x9b\xff\xe2\x82)") << "not UTF-8";
}

TEST(Quoted, ShortensAtACharacterAndHidesControls) {
  EXPECT_EQ(in_quotes("a\nb\x1b"), R"('a\nb\x1b')");
  EXPECT_EQ(in_quotes(std::string(60, 'x')), "'" + std::string(60, 'x') + "'");
  EXPECT_EQ(in_quotes(std::string(61, 'x')), "'" + std::string(60, 'x') + "...'");
  EXPECT_EQ(in_quotes(std::string(59, 'x') + "\xc3\xa9" + "y"),
            "'" + std::string(59, 'x') + "...'");
}

TEST(Join, ReadsLikeASentence) {
  EXPECT_EQ(join({}, "or"), "");
  EXPECT_EQ(join(std::array{"a"sv}, "or"), "a");
  EXPECT_EQ(join(std::array{"a"sv, "b"sv}, "or"), "a or b");
  EXPECT_EQ(join(std::array{"a"sv, "b"sv, "c"sv}, "and"), "a, b and c");
}

}  // namespace
}  // namespace remora::config
