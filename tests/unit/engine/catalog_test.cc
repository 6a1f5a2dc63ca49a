#include "server/catalog.h"

#include <gtest/gtest.h>
#include <thread>

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

TEST_F(CatalogTest, ATtlGoesWithItsLifetimeAndNoOther) {
  auto wanted = spec("a");
  wanted.ttl = std::chrono::seconds{1};
  EXPECT_EQ(create(wanted).error().code(), Code::kInvalidArgument);
  wanted.lifetime = Lifetime::kTtl;
  wanted.ttl = std::chrono::milliseconds{99};
  EXPECT_EQ(create(wanted).error().code(), Code::kInvalidArgument);
  wanted.ttl = std::chrono::hours{24 * 365} + std::chrono::milliseconds{1};
  EXPECT_EQ(create(wanted).error().code(), Code::kInvalidArgument);
}

TEST_F(CatalogTest, ExpiresOnceNobodyHasHadItOpenForItsTtl) {
  auto wanted = spec("a");
  wanted.lifetime = Lifetime::kTtl;
  wanted.ttl = std::chrono::milliseconds{1500};
  ASSERT_TRUE(create(wanted));
  ASSERT_TRUE(create(spec("b")));
  const auto entry = catalog_.open("a").value();
  std::this_thread::sleep_for(std::chrono::milliseconds{1600});
  EXPECT_TRUE(catalog_.expired().empty()) << "it is open";
  EXPECT_FALSE(catalog_.expire(*entry));
  catalog_.close(*entry);
  EXPECT_TRUE(catalog_.expired().empty()) << "its ttl begins now";
  std::this_thread::sleep_for(std::chrono::milliseconds{1600});
  ASSERT_EQ(catalog_.expired().size(), 1U);
  EXPECT_TRUE(catalog_.expire(*entry));
  EXPECT_FALSE(catalog_.expire(*entry));
  EXPECT_EQ(catalog_.size(), 1U);
}

TEST_F(CatalogTest, RetiredRegionFreesItsNameAndKeepsItsMemory) {
  ASSERT_TRUE(create(spec("a")));
  auto entry = catalog_.open("a").value();
  EXPECT_TRUE(catalog_.retire(*entry));
  EXPECT_FALSE(catalog_.retire(*entry));
  EXPECT_EQ(catalog_.find("a").error().code(), Code::kUnknownRegion);
  ASSERT_TRUE(create(spec("a")));
  EXPECT_FALSE(catalog_.retire(*entry)) << "that is another one";
  EXPECT_FALSE(catalog_.holds(*entry));
  EXPECT_EQ(pool_->usage().used_bytes, 2U * config::kPoolPageBytes);
  catalog_.close(*entry);
  entry.reset();
  EXPECT_EQ(pool_->usage().used_bytes, 1U * config::kPoolPageBytes);
}

TEST_F(CatalogTest, EpochsOnlyGrow) {
  const RegionInfo made = create(spec("a")).value();
  const auto entry = catalog_.find("a").value();
  catalog_.raise_epoch(*entry);
  EXPECT_GT(entry->info().epoch, made.epoch);
  EXPECT_GT(create(spec("b")).value().epoch, entry->info().epoch);
}

}  // namespace
}  // namespace remora::detail
