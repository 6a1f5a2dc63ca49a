#include "server/catalog.h"

#include <gtest/gtest.h>

namespace remora::detail {
namespace {

class CatalogTest : public ::testing::Test {
 protected:
  static RegionSpec spec(std::string name, std::uint64_t size_bytes = 4096) {
    return {.name = std::move(name), .size_bytes = size_bytes, .atomic_domain = "cpu"};
  }
  Result<RegionInfo> create(const RegionSpec& spec) {
    return catalog_.create(spec, Clock::now() + std::chrono::seconds{5});
  }
  std::shared_ptr<Pool> pool_ =
      Pool::create({.size_bytes = 1U << 20U, .piece_bytes = 1U << 20U}).value();
  Catalog catalog_{pool_, 3};
};

TEST_F(CatalogTest, CreateRefusesWhatIsNoRegion) {
  EXPECT_EQ(create(spec("")).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(create(spec("../x")).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(create(spec("a", 0)).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(create(spec("a", 4097)).error().code(), Code::kInvalidArgument);
  auto odd = spec("a");
  odd.block_bytes = 3000;
  EXPECT_EQ(create(odd).error().code(), Code::kInvalidArgument);
  auto powerless = spec("a");
  powerless.rights = Rights::kNone;
  EXPECT_EQ(create(powerless).error().code(), Code::kInvalidArgument);
}

TEST_F(CatalogTest, NamesAreUniqueAndCounted) {
  ASSERT_TRUE(create(spec("a")));
  EXPECT_EQ(create(spec("a")).error().code(), Code::kAlreadyExists);
  ASSERT_TRUE(create(spec("b")));
  ASSERT_TRUE(create(spec("c")));
  const Error full = create(spec("d")).error();
  EXPECT_EQ(full.code(), Code::kLimitExceeded);
  EXPECT_EQ(full.subject(), "limits.regions_max");
}

TEST_F(CatalogTest, RemoveIsBusyWhileOpen) {
  ASSERT_TRUE(create(spec("a")));
  auto entry = catalog_.open("a").value();
  EXPECT_EQ(catalog_.remove("a").error().code(), Code::kBusy);
  catalog_.close(*entry);
  EXPECT_TRUE(catalog_.remove("a"));
  EXPECT_EQ(catalog_.remove("a").error().code(), Code::kUnknownRegion);
}

TEST_F(CatalogTest, ListIsSortedAndPaged) {
  for (const char* name : {"c", "a", "b"}) ASSERT_TRUE(create(spec(name)));
  const auto page = catalog_.list("a", 1);
  ASSERT_EQ(page.size(), 1U);
  EXPECT_EQ(page[0].name, "b");
}

TEST_F(CatalogTest, EveryRegionHasItsOwnEpoch) {
  const auto first = create(spec("a")).value();
  ASSERT_TRUE(catalog_.remove("a"));
  EXPECT_GT(create(spec("a")).value().epoch, first.epoch);
}

}  // namespace
}  // namespace remora::detail
