#include "server/memory/catalog.h"

#include <gtest/gtest.h>
#include <span>
#include <thread>

namespace remora::detail {
namespace {

class CatalogTest : public ::testing::Test {
 protected:
  static RegionSpec spec(std::string name, std::uint64_t size_bytes = 4096) {
    return {.name = std::move(name), .size_bytes = size_bytes, .atomic_domain = "cpu"};
  }
  Result<RegionInfo> create(const RegionSpec& spec) {
    return catalog_.create(spec, Clock::now() + std::chrono::seconds{60});
  }
  std::shared_ptr<Pool> pool_ =
      Pool::create({.size_bytes = 1U << 20U, .piece_bytes = 1U << 20U}).value();
  Catalog catalog_{pool_, 3};
};

TEST_F(CatalogTest, CreateRefusesSpecsOfNoRegion) {
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

TEST_F(CatalogTest, RegionsOfTheProcessBeforeAreHeldLonger) {
  ASSERT_TRUE(create(spec("a")));
  const Deadline now = Clock::now();
  catalog_.hold_longer(now + std::chrono::hours{1});
  EXPECT_FALSE(catalog_.find("a").value()->held()) << "it was not held before";
  catalog_.hold_all(now);
  ASSERT_TRUE(create(spec("b")));
  catalog_.hold_longer(now + std::chrono::hours{1});
  catalog_.hold_longer(now);
  EXPECT_EQ(catalog_.remove("a").error().code(), Code::kBusy);
  EXPECT_TRUE(catalog_.remove("b")) << "a client of this process has created it";
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

TEST_F(CatalogTest, RegionThatNoClientHasOpenExpiresAfterItsTtl) {
  auto wanted = spec("a");
  wanted.lifetime = Lifetime::kTtl;
  wanted.ttl = std::chrono::milliseconds{1500};
  ASSERT_TRUE(create(wanted));
  ASSERT_TRUE(create(spec("b")));
  const auto entry = catalog_.open("a").value();
  std::this_thread::sleep_for(std::chrono::milliseconds{1600});
  EXPECT_TRUE(catalog_.expired().empty()) << "it is open";
  EXPECT_FALSE(catalog_.expire(*entry));
  const auto closed = std::chrono::steady_clock::now();
  catalog_.close(*entry);
  // If the host stood still, the ttl may be over already.
  const bool stays = catalog_.expired().empty();
  EXPECT_TRUE(stays || std::chrono::steady_clock::now() - closed >= wanted.ttl)
      << "its ttl begins now";
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

/// Looks at a region's memory when it is told of a change.
class WatchingJournal final : public RegionJournal {
 public:
  Status keep(std::uint64_t /*incarnation*/, int /*memory_fd*/) override { return {}; }
  bool record(std::span<const JournaledRegion> regions, std::uint64_t /*next*/) noexcept override {
    if (regions.empty()) return !frozen;
    size_bytes = regions.front().info.size_bytes;
    pool_bytes = 0;
    for (const PoolExtent& extent : regions.front().extents) pool_bytes += extent.length_bytes;
    if (watched != nullptr) seen = *watched;
    return !frozen;
  }
  void record_nothing() noexcept override {}

  bool frozen = false;
  const std::byte* watched = nullptr;
  std::byte seen{};
  std::uint64_t size_bytes = 0;
  std::uint64_t pool_bytes = 0;
};

/// A process that ends in between leaves no zeros in a region that the next one takes over.
TEST_F(CatalogTest, ShrinkIsRecordedBeforeItZeroes) {
  WatchingJournal journal;
  Catalog catalog{pool_, 3, &journal};
  constexpr std::uint64_t kPage = config::kPoolPageBytes;
  ASSERT_TRUE(catalog.create(spec("a", 2 * kPage), Clock::now() + std::chrono::seconds{60}));
  const auto entry = catalog.find("a").value();
  std::byte* const last = entry->memory()->stretches().front().address + kPage - 1;
  *last = std::byte{7};
  journal.watched = last;
  ASSERT_TRUE(catalog.shrink(*entry, kPage - 64));
  EXPECT_EQ(journal.seen, std::byte{7});
  EXPECT_EQ(journal.size_bytes, kPage - 64);
  EXPECT_EQ(journal.pool_bytes, kPage);
  EXPECT_EQ(*last, std::byte{0});
}

TEST_F(CatalogTest, MemoryThatIsLeftToTheNextProcessIsNotShrunk) {
  WatchingJournal journal;
  Catalog catalog{pool_, 3, &journal};
  constexpr std::uint64_t kPage = config::kPoolPageBytes;
  ASSERT_TRUE(catalog.create(spec("a", kPage), Clock::now() + std::chrono::seconds{60}));
  const auto entry = catalog.find("a").value();
  std::byte* const last = entry->memory()->stretches().front().address + kPage - 1;
  *last = std::byte{7};
  journal.frozen = true;
  EXPECT_EQ(catalog.shrink(*entry, 64).error().code(), Code::kClosed);
  EXPECT_EQ(entry->size_bytes(), kPage);
  EXPECT_EQ(*last, std::byte{7});
}

/// A catalog over a pool of large pages.
class LargePagesTest : public CatalogTest {
 protected:
  static constexpr std::uint64_t kLarge = 64U << 10U;
  void SetUp() override { EXPECT_EQ(taken(), 0U); }
  [[nodiscard]] std::uint64_t taken() const { return large_->usage().used_bytes; }
  /// All regions belong to one owner.
  void expect_counted(std::uint64_t bytes) {
    EXPECT_EQ(taken(), bytes);
    EXPECT_EQ(of_large_.owned_bytes("alice"), bytes);
  }
  Result<RegionInfo> create_for_alice(const RegionSpec& spec) {
    return of_large_.create(spec, Clock::now() + std::chrono::seconds{60}, "alice");
  }
  std::shared_ptr<Pool> large_ =
      Pool::create({.size_bytes = 1U << 20U, .piece_bytes = 1U << 20U}, {}, kLarge).value();
  Catalog of_large_{large_, 3};
};

TEST_F(LargePagesTest, OwnerIsCountedThePagesOfItsRegions) {
  ASSERT_TRUE(create_for_alice(spec("a")));
  expect_counted(kLarge);
  ASSERT_TRUE(create_for_alice(spec("b", kLarge + 4096)));
  expect_counted(3 * kLarge);
  const Deadline soon = Clock::now() + std::chrono::seconds{60};
  auto entry = of_large_.find("a").value();
  ASSERT_TRUE(of_large_.grow(*entry, kLarge, soon));
  expect_counted(3 * kLarge);
  ASSERT_TRUE(of_large_.grow(*entry, kLarge + 4096, soon));
  expect_counted(4 * kLarge);
  ASSERT_TRUE(of_large_.shrink(*entry, 8192));
  expect_counted(3 * kLarge);
  entry.reset();
  ASSERT_TRUE(of_large_.remove("a"));
  expect_counted(2 * kLarge);
  ASSERT_TRUE(of_large_.remove("b"));
  expect_counted(0);
}

TEST_F(LargePagesTest, QuotaIsAskedForWholePages) {
  EXPECT_EQ(of_large_.more_bytes(4096), kLarge);
  EXPECT_EQ(of_large_.more_bytes(kLarge, 4096), 0U) << "it has that page";
  EXPECT_EQ(of_large_.more_bytes(kLarge + 4096, 4096), kLarge);
  ASSERT_TRUE(create_for_alice(spec("a")));
  EXPECT_TRUE(of_large_.check_quota("alice", 2 * kLarge, of_large_.more_bytes(4096)));
  const Status over = of_large_.check_quota("alice", 2 * kLarge - 4096, of_large_.more_bytes(4096));
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code(), Code::kLimitExceeded);
  EXPECT_TRUE(of_large_.check_quota("alice", 4096, of_large_.more_bytes(kLarge, 4096)))
      << "a quota that has become smaller takes nothing away, and what takes nothing more may be";
  EXPECT_TRUE(of_large_.check_quota("bob", kLarge, of_large_.more_bytes(4096)));
  EXPECT_TRUE(of_large_.check_quota("alice", 0, of_large_.more_bytes(1U << 30U))) << "no quota";
  EXPECT_FALSE(of_large_.check_quota("bob", kLarge, of_large_.more_bytes(~std::uint64_t{0})));
}

}  // namespace
}  // namespace remora::detail
