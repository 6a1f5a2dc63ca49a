#include <atomic>
#include <chrono>
#include <fcntl.h>
#include <fstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "fake_nic.h"
#include "interval_index.h"
#include "mapping_kind.h"
#include "memory_monitor.h"

namespace remora::test {
namespace {

using verbs::Access;
using verbs::Invalidation;
using verbs::MrCache;
using verbs::MrLease;

class MrCacheKeeps : public MrCacheTest {
 protected:
  void create_explicit(verbs::MrCacheOptions options = {}) {
    options.invalidation = Invalidation::kExplicit;
    create(options);
  }
};

TEST_F(MrCacheKeeps, SecondAcquireIsAHit) {
  create();
  ASSERT_TRUE(cache_->automatic()) << cache_->why_not_automatic();
  EXPECT_EQ(cache_->why_not_automatic(), "");
  const Mapping memory{4};
  const auto first = acquire(memory.bytes()).piece(0);
  const auto second = acquire(memory.pages(1, 2));
  EXPECT_EQ(second.piece(0).lkey, first.lkey);
  EXPECT_EQ(second.piece(0).address, reinterpret_cast<std::uintptr_t>(memory.data() + kPage));
  EXPECT_EQ(second.piece(0).length_bytes, 2 * kPage);
  const auto counters = cache_->counters();
  EXPECT_EQ(counters.hits, 1U);
  EXPECT_EQ(counters.misses, 1U);
  EXPECT_EQ(counters.registrations, 1U);
  EXPECT_EQ(counters.pinned_bytes, 4 * kPage);
  EXPECT_EQ(counters.pinned_registrations, 1U);
}

TEST_F(MrCacheKeeps, OddBytesAreWidenedToPagesUnlessPeersMayReachThem) {
  create_explicit();
  const Mapping memory{4};
  const auto odd = memory.bytes().subspan(100, kPage);
  static_cast<void>(acquire(odd));
  EXPECT_EQ(cache_->counters().pinned_bytes, 2 * kPage);
  const auto lease = cache_->acquire(odd, Access::kRemoteRead).value();
  EXPECT_EQ(cache_->counters().pinned_bytes, 4 * kPage);  // pages are pinned whole
  EXPECT_EQ(lease.piece(0).length_bytes, kPage);
}

TEST_F(MrCacheKeeps, OtherRightsAreOtherRegistrations) {
  create_explicit();
  const Mapping memory{1};
  const auto lease = acquire(memory.bytes());
  const auto other = cache_->acquire(memory.bytes(), Access::kNone).value();
  EXPECT_NE(lease.piece(0).lkey, other.piece(0).lkey);
}

TEST_F(MrCacheKeeps, LongerRangeSupersedesThoseInside) {
  create_explicit();
  const Mapping memory{8};
  auto held = acquire(memory.pages(2, 1));
  static_cast<void>(acquire(memory.pages(5, 1)));
  static_cast<void>(acquire(memory.bytes()));
  EXPECT_EQ(cache_->counters().superseded, 2U);
  EXPECT_EQ(nic_->live(), 2U);  // the long one, and the one that is held
  EXPECT_TRUE(nic_->fresh(held));
  held.drop();
  EXPECT_EQ(nic_->live(), 1U);
}

TEST_F(MrCacheKeeps, TouchingMappingsAreNotMerged) {
  create();
  const Mapping memory{4};
  static_cast<void>(acquire(memory.pages(0, 2)));
  static_cast<void>(acquire(memory.pages(2, 2)));
  EXPECT_EQ(nic_->live(), 2U);
  static_cast<void>(acquire(memory.pages(1, 2)));  // over both: one of its own
  EXPECT_EQ(nic_->live(), 3U);
}

TEST_F(MrCacheKeeps, LeaseOutlivesTheCacheAndTheDomain) {
  create();
  const Mapping memory{1};
  auto lease = acquire(memory.bytes());
  cache_.reset();
  domain_ = {};
  stamp(memory.bytes());
  EXPECT_TRUE(nic_->fresh(lease));
  MrLease other;
  other = std::move(lease);
  EXPECT_TRUE(lease.empty());  // NOLINT(bugprone-use-after-move): that is what is asked
  EXPECT_EQ(nic_->live(), 1U);
  other.drop();
  EXPECT_EQ(nic_->live(), 0U);
}

TEST_F(MrCacheKeeps, MovedCacheKeepsItsRegistrations) {
  create();
  const Mapping memory{1};
  const auto key = acquire(memory.bytes()).piece(0).lkey;
  MrCache moved{std::move(*cache_)};
  EXPECT_CODE(cache_->acquire(memory.bytes(), Access::kLocalWrite), kClosed);
  EXPECT_EQ(moved.acquire(memory.bytes(), Access::kLocalWrite).value().piece(0).lkey, key);
  *cache_ = std::move(moved);
  EXPECT_EQ(acquire(memory.bytes()).piece(0).lkey, key);
}

TEST_F(MrCacheKeeps, ExplicitInvalidate) {
  create_explicit();
  EXPECT_FALSE(cache_->automatic());
  const Mapping memory{4};
  static_cast<void>(acquire(memory.pages(0, 1)));
  auto held = acquire(memory.pages(1, 1));
  static_cast<void>(acquire(memory.pages(3, 1)));
  EXPECT_EQ(cache_->invalidate(memory.pages(0, 2)), 2U);
  EXPECT_EQ(nic_->live(), 2U);
  held.drop();
  EXPECT_EQ(nic_->live(), 1U);
  EXPECT_EQ(cache_->counters().explicitly, 2U);
  EXPECT_EQ(cache_->invalidate({}), 0U);
}

TEST_F(MrCacheKeeps, LongRangesGoInAlignedPieces) {
  create_explicit({.piece_bytes = 4 * kPage});
  const Mapping memory{19};
  const auto lease = acquire(memory.bytes());
  std::uintptr_t at = reinterpret_cast<std::uintptr_t>(memory.data());
  ASSERT_GE(lease.piece_count(), 5U);
  for (std::size_t i = 0; i < lease.piece_count(); ++i) {
    const auto piece = lease.piece(i);
    EXPECT_EQ(piece.address, at);
    EXPECT_TRUE(i == 0 || piece.address % (4 * kPage) == 0);
    at += piece.length_bytes;
  }
  EXPECT_EQ(at, reinterpret_cast<std::uintptr_t>(memory.data() + memory.size()));
  EXPECT_EQ(cache_->counters().registrations, lease.piece_count());
  stamp(memory.bytes());
  EXPECT_TRUE(nic_->fresh(lease));
  const auto part = acquire(memory.pages(7, 6));
  EXPECT_TRUE(nic_->fresh(part));
  const auto whole_piece = lease.piece(1);
  const std::uint64_t offset = whole_piece.address - lease.piece(0).address;
  EXPECT_TRUE(lease.slice(offset, 4 * kPage).valid());
  EXPECT_FALSE(lease.slice(offset, 4 * kPage + 1).valid());
  EXPECT_FALSE(lease.slice(memory.size(), 1).valid());
}

using MrCacheBudget = MrCacheKeeps;

TEST_F(MrCacheBudget, LeastRecentlyUsedGoesFirst) {
  create_explicit({.registrations_max = 3});
  const Mapping memory{8};
  for (const std::size_t page : {0U, 2U, 4U}) static_cast<void>(acquire(memory.pages(page, 1)));
  static_cast<void>(acquire(memory.pages(6, 1)));  // 0 goes
  static_cast<void>(acquire(memory.pages(2, 1)));  // 2 is used
  static_cast<void>(acquire(memory.pages(7, 1)));  // 4 goes
  EXPECT_EQ(cache_->counters().evictions, 2U);
  const auto before = cache_->counters().hits;
  static_cast<void>(acquire(memory.pages(2, 1)));
  EXPECT_EQ(cache_->counters().hits, before + 1);
}

TEST_F(MrCacheBudget, LeasedRegistrationsStayAndTheErrorHasTheNumbers) {
  create_explicit({.bytes_max = 4 * kPage});
  const Mapping memory{8};
  auto held = acquire(memory.pages(0, 3));
  const auto refused = cache_->acquire(memory.pages(4, 2), Access::kLocalWrite);
  EXPECT_CODE(refused, kOutOfMemory);
  EXPECT_EQ(refused.error().asked(), 2 * kPage);
  EXPECT_EQ(refused.error().allowed(), kPage);
  held.drop();
  EXPECT_TRUE(cache_->acquire(memory.pages(4, 2), Access::kLocalWrite).ok());
  const auto larger = cache_->acquire(memory.bytes(), Access::kLocalWrite);
  EXPECT_CODE(larger, kLimitExceeded);
  EXPECT_EQ(larger.error().asked(), 8 * kPage);
  EXPECT_EQ(larger.error().allowed(), 4 * kPage);
}

TEST_F(MrCacheBudget, PiecesCount) {
  create_explicit({.registrations_max = 2, .piece_bytes = kPage});
  const Mapping memory{4};
  EXPECT_CODE(cache_->acquire(memory.pages(0, 3), Access::kLocalWrite), kLimitExceeded);
  EXPECT_TRUE(cache_->acquire(memory.pages(0, 2), Access::kLocalWrite).ok());
}

// A registration that another thread is deregistering has no lease.
TEST_F(MrCacheBudget, RoomThatIsBeingMadeIsWaitedFor) {
  create_explicit({.bytes_max = 4 * kPage});
  const Mapping memory{8};
  static_cast<void>(acquire(memory.pages(0, 4)));
  std::atomic<bool> begun{false};
  nic_->before_deregistering = [&] {
    if (begun.exchange(true)) return;
    begun.notify_one();
    std::this_thread::sleep_for(std::chrono::milliseconds{50});  // the other one asks meanwhile
  };
  std::thread invalidating{[&] { cache_->invalidate(memory.pages(0, 4)); }};
  begun.wait(false);
  EXPECT_TRUE(cache_->acquire(memory.pages(4, 4), Access::kLocalWrite).ok());
  invalidating.join();
  nic_->before_deregistering = nullptr;
}

using MrCacheRefuses = MrCacheKeeps;

TEST_F(MrCacheRefuses, BadOptions) {
  EXPECT_CODE(MrCache::create({}), kInvalidArgument);
  EXPECT_CODE(MrCache::create(domain_, {.bytes_max = 0}), kInvalidArgument);
  EXPECT_CODE(MrCache::create(domain_, {.registrations_max = 0}), kInvalidArgument);
  EXPECT_CODE(MrCache::create(domain_, {.piece_bytes = 3 * kPage}), kInvalidArgument);
  EXPECT_CODE(MrCache::create(domain_, {.piece_bytes = 1}), kInvalidArgument);
}

TEST_F(MrCacheRefuses, BadRangesAndRights) {
  create();
  const Mapping memory{1};
  EXPECT_CODE(cache_->acquire({}, Access::kLocalWrite), kInvalidArgument);
  const std::span<std::byte> wraps{memory.data(), SIZE_MAX - 100};
  EXPECT_CODE(cache_->acquire(wraps, Access::kLocalWrite), kInvalidArgument);
  EXPECT_CODE(cache_->acquire(memory.bytes(), Access::kRemoteWrite), kInvalidArgument);
  EXPECT_CODE(cache_->acquire(memory.bytes(), Access::kZeroBased), kInvalidArgument);
  EXPECT_EQ(cache_->counters().pinned_bytes, 0U);
}

TEST_F(MrCacheRefuses, PassedDeadlineRegistersNothing) {
  create();
  const Mapping memory{1};
  EXPECT_CODE(cache_->acquire(memory.bytes(), Access::kLocalWrite,
                              verbs::deadline_in(std::chrono::seconds{-1})),
              kTimedOut);
  EXPECT_EQ(nic_->live(), 0U);
  EXPECT_EQ(cache_->counters().pinned_bytes, 0U);
}

TEST_F(MrCacheRefuses, FailedRegistrationAtEveryPieceLeavesNothing) {
  create_explicit({.piece_bytes = kPage});
  const Mapping memory{5};
  for (int nth = 1; nth <= 5; ++nth) {
    fake_.fail("reg_mr", nth, EIO);
    EXPECT_CODE(cache_->acquire(memory.bytes(), Access::kLocalWrite), kProvider);
    EXPECT_EQ(nic_->live(), 0U);
    EXPECT_EQ(cache_->counters().pinned_bytes, 0U);
    EXPECT_EQ(cache_->counters().pinned_registrations, 0U);
    EXPECT_EQ(cache_->counters().failures.at(EIO), static_cast<std::uint64_t>(nth));
  }
  EXPECT_TRUE(cache_->acquire(memory.bytes(), Access::kLocalWrite).ok());
}

TEST_F(MrCacheRefuses, FullDeviceCostsTheIdleRegistrations) {
  create_explicit();
  const Mapping memory{4};
  static_cast<void>(acquire(memory.pages(0, 1)));
  const auto held = acquire(memory.pages(1, 1));
  fake_.fail("reg_mr", 1, ENOMEM);
  EXPECT_TRUE(cache_->acquire(memory.pages(3, 1), Access::kLocalWrite).ok());
  EXPECT_EQ(cache_->counters().evictions, 1U);
  EXPECT_EQ(cache_->counters().failures.at(ENOMEM), 1U);
}

TEST_F(MrCacheRefuses, FailedDeregistrationStaysCounted) {
  create_explicit();
  const Mapping memory{1};
  static_cast<void>(acquire(memory.bytes()));
  const auto failures = verbs::teardown_failure_count();
  fake_.fail("dereg_mr", 1, EBUSY);
  EXPECT_EQ(cache_->invalidate(memory.bytes()), 1U);
  EXPECT_EQ(verbs::teardown_failure_count(), failures + 1);
  EXPECT_EQ(cache_->counters().failures.at(EBUSY), 1U);
  EXPECT_EQ(cache_->counters().pinned_bytes, kPage);
}

TEST_F(MrCacheRefuses, FailedDeregistrationOfAnUnfinishedRegistrationStaysCounted) {
  create_explicit({.piece_bytes = kPage});
  const Mapping memory{3};
  fake_.fail("reg_mr", 3, EIO);
  fake_.fail("dereg_mr", 1, EBUSY);
  EXPECT_CODE(cache_->acquire(memory.bytes(), Access::kLocalWrite), kProvider);
  EXPECT_EQ(cache_->counters().failures.at(EBUSY), 1U);
  EXPECT_EQ(cache_->counters().pinned_bytes, kPage);
  EXPECT_EQ(cache_->counters().pinned_registrations, 1U);
}

TEST_F(MrCacheRefuses, WhereTheKernelReportsNothingNothingIsKept) {
  verbs::detail::MemoryMonitor::refuse_errno = EPERM;
  create();
  EXPECT_FALSE(cache_->automatic());
  EXPECT_NE(cache_->why_not_automatic().find("seccomp"), std::string_view::npos);
  const Mapping memory{2};
  for (int i = 0; i < 3; ++i) {
    expect_fresh(memory.bytes());
    EXPECT_EQ(nic_->live(), 0U);
  }
  EXPECT_EQ(cache_->counters().unkept, 3U);
  EXPECT_EQ(cache_->counters().hits, 0U);
}

TEST_F(MrCacheRefuses, ChildMustNotUseIt) {
  create();
  const Mapping memory{1};
  auto lease = acquire(memory.bytes());
  const pid_t child = ::fork();
  if (child == 0) {
    const auto refused = cache_->acquire(memory.bytes(), Access::kLocalWrite);
    const bool closed = !refused.ok() && refused.error().code() == Code::kClosed;
    lease.drop();
    cache_.reset();
    ::_exit(closed && nic_->live() == 1 && fake_.uses("dereg_mr") == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  lease.drop();
  EXPECT_EQ(acquire(memory.bytes()).piece_count(), 1U);
  EXPECT_EQ(cache_->counters().hits, 1U);
}

TEST(MappingKind, BothWaysAgree) {
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  std::ifstream file{"/proc/self/maps"};
  std::string line;
  int compared = 0;
  while (std::getline(file, line)) {
    const std::uintptr_t begin = std::stoul(line, nullptr, 16);
    const auto end = begin + kPage;
    if (line.find("[vsyscall]") != std::string::npos) continue;  // outside user space
    EXPECT_EQ(verbs::detail::is_private_anonymous(maps, begin, end),
              verbs::detail::is_private_anonymous_by_text(begin, end))
        << line;
    ++compared;
  }
  ::close(maps);
  EXPECT_GT(compared, 10);
  const Mapping memory{3};
  const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
  EXPECT_TRUE(verbs::detail::is_private_anonymous_by_text(at, at + 3 * kPage));
}

}  // namespace
}  // namespace remora::test
