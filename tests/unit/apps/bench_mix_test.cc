#include "cli/bench_mix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

namespace remora::apps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kWordMax = std::numeric_limits<std::uint64_t>::max();

std::string mix_error(std::string_view text) {
  const auto mix = BenchMix::parse(text);
  return mix ? "" : mix.error();
}

TEST(BenchMixParse, OneOperationAlone) {
  for (const char* const name : {"read", "write", "cas", "add"}) {
    const auto mix = BenchMix::parse(name);
    ASSERT_TRUE(mix) << name;
    ASSERT_EQ(mix->shares().size(), 1U);
    EXPECT_EQ(to_string(mix->shares().front().op), name);
    EXPECT_EQ(mix->text(), name);
  }
  EXPECT_EQ(BenchMix{}.text(), "read");
  EXPECT_EQ(BenchMix::parse("write:5").value().text(), "write");
}

TEST(BenchMixParse, WeightsInTheOrderGiven) {
  const auto mix = BenchMix::parse("write:30,read:70,cas:1,add:1000000");
  ASSERT_TRUE(mix);
  ASSERT_EQ(mix->shares().size(), 4U);
  EXPECT_EQ(mix->shares()[0].op, BenchOp::kWrite);
  EXPECT_EQ(mix->shares()[0].weight, 30U);
  EXPECT_EQ(mix->shares()[3].op, BenchOp::kFetchAdd);
  EXPECT_EQ(mix->shares()[3].weight, 1'000'000U);
  EXPECT_EQ(mix->text(), "write:30,read:70,cas:1,add:1000000");
  EXPECT_EQ(BenchMix::parse(mix->text()).value().text(), mix->text());
}

TEST(BenchMixParse, WithoutWeightsAllAreEquallyOften) {
  EXPECT_EQ(BenchMix::parse("read,add").value().text(), "read:1,add:1");
}

TEST(BenchMixParse, UnknownOperationNamesTheNearest) {
  EXPECT_THAT(mix_error("raed"), HasSubstr("did you mean 'read'?"));
  EXPECT_THAT(mix_error("read:1,wriet:2"), HasSubstr("did you mean 'write'?"));
  EXPECT_THAT(mix_error("fly"), HasSubstr("expected read, write, cas or add"));
  EXPECT_THAT(mix_error("fly"), testing::Not(HasSubstr("did you mean")));
  EXPECT_THAT(mix_error(" read"), HasSubstr("' read' is no operation"));
}

TEST(BenchMixParse, WeightOutsideItsBoundsIsRefused) {
  for (const char* const text :
       {"read:0", "read:1000001", "read:", "read:-1", "read:+1", "read:1.5", "read:70%", "read:07",
        "read:1:2", "read:99999999999999999999", "read: 1"})
    EXPECT_THAT(mix_error(text), HasSubstr("expected 1 to 1000000")) << text;
}

TEST(BenchMixParse, MixedWeightsTwiceTheSameAndEmptyElementsAreRefused) {
  EXPECT_THAT(mix_error("read:70,write"), HasSubstr("to all or to none"));
  EXPECT_THAT(mix_error("read:1,write:1,read:2"), HasSubstr("read stands twice"));
  EXPECT_THAT(mix_error(""), HasSubstr("nothing is given"));
  for (const char* const text : {",", "read,", ",read", "read,,write"})
    EXPECT_THAT(mix_error(text), HasSubstr("is empty")) << text;
}

TEST(BenchMix, KnowsItsOperations) {
  const BenchMix mix = BenchMix::parse("read,cas").value();
  EXPECT_TRUE(mix.contains(BenchOp::kRead));
  EXPECT_FALSE(mix.contains(BenchOp::kWrite));
  EXPECT_TRUE(mix.any_atomic());
  EXPECT_FALSE(mix.only_atomic());
  EXPECT_TRUE(BenchMix::parse("add,cas").value().only_atomic());
  EXPECT_FALSE(BenchMix::parse("read,write").value().any_atomic());
}

TEST(BenchMix, PicksByWeight) {
  const BenchMix mix = BenchMix::parse("read:1,write:2,add:1").value();
  EXPECT_EQ(mix.pick(0), BenchOp::kRead);
  EXPECT_EQ(mix.pick(kWordMax / 4), BenchOp::kRead);
  EXPECT_EQ(mix.pick(kWordMax / 4 + 1), BenchOp::kWrite);
  EXPECT_EQ(mix.pick(kWordMax / 4 * 3), BenchOp::kWrite);
  EXPECT_EQ(mix.pick(kWordMax / 4 * 3 + 3), BenchOp::kFetchAdd);
  EXPECT_EQ(mix.pick(kWordMax), BenchOp::kFetchAdd);
  EXPECT_EQ(BenchMix::parse("cas").value().pick(kWordMax), BenchOp::kCompareSwap);
}

TEST(ParseSizeList, SizesInTheOrderGiven) {
  EXPECT_THAT(parse_size_list("64").value(), ElementsAre(64U));
  EXPECT_THAT(parse_size_list("64KiB,1B,4096").value(), ElementsAre(65536U, 1U, 4096U));
}

TEST(ParseSizeList, WrongElementsAreExplained) {
  EXPECT_THAT(parse_size_list("4KiB,0").error(), HasSubstr("at least 1B"));
  EXPECT_THAT(parse_size_list("4KiB,4kb").error(), HasSubstr("write 4KiB"));
  EXPECT_THAT(parse_size_list("4KiB,,8KiB").error(), HasSubstr("is empty"));
  EXPECT_THAT(parse_size_list("4KiB;8KiB").error(), HasSubstr("KiB;8KiB"));
  EXPECT_THAT(parse_size_list("").error(), HasSubstr("nothing is given"));
  EXPECT_THAT(parse_size_list("4KiB, 8KiB").error(), HasSubstr(" 8KiB"));
}

TEST(ParseSizeList, HasALimit) {
  std::string text = "1";
  for (std::size_t i = 1; i < kBenchListMax; ++i) text += ",1";
  EXPECT_EQ(parse_size_list(text).value().size(), kBenchListMax);
  EXPECT_THAT(parse_size_list(text + ",1").error(), HasSubstr("at most 32"));
}

TEST(ParseDepthList, DepthsInTheOrderGiven) {
  EXPECT_THAT(parse_depth_list("32,1,65536").value(), ElementsAre(32U, 1U, 65536U));
}

TEST(ParseDepthList, WrongElementsAreExplained) {
  for (const char* const text : {"0", "65537", "1,x", "1,-1", "1KiB", "1,1.5"})
    EXPECT_THAT(parse_depth_list(text).error(), HasSubstr("expected 1 to 65536")) << text;
  EXPECT_THAT(parse_depth_list("1,").error(), HasSubstr("is empty"));
}

}  // namespace
}  // namespace remora::apps
