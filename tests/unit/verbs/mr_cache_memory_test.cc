// What an MrCache does when there is no memory left: nothing that ends needs any, and what begins
// fails typed or is not kept. The allocations of one thread fail here when it says so.

#include <cerrno>
#include <cstdlib>
#include <new>
#include <utility>

#include "fake_nic.h"
#include "interval_index.h"

namespace remora::test {
namespace {

// Allocations of this thread that still succeed; negative: all.
thread_local int t_allocations_left = -1;

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  if (t_allocations_left == 0) throw std::bad_alloc{};
  if (t_allocations_left > 0) --t_allocations_left;
  void* block = nullptr;
  if (::posix_memalign(&block, std::max(alignment, sizeof(void*)),
                       std::max<std::size_t>(size, 1)) != 0)
    throw std::bad_alloc{};
  return block;
}

class WithAllocations {
 public:
  explicit WithAllocations(int count) noexcept
      : before_{std::exchange(t_allocations_left, count)} {}
  ~WithAllocations() { t_allocations_left = before_; }
  WithAllocations(const WithAllocations&) = delete;
  WithAllocations& operator=(const WithAllocations&) = delete;

 private:
  int before_;
};
constexpr int kAllAllocations = -1;

}  // namespace
}  // namespace remora::test

[[gnu::noinline]] void* operator new(std::size_t size) {
  return remora::test::allocate_or_throw(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  return remora::test::allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* block) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, std::size_t) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, std::size_t, std::align_val_t) noexcept {
  std::free(block);
}

namespace remora::test {
namespace {

using verbs::Access;
using verbs::Invalidation;
using verbs::detail::Interval;
using verbs::detail::IntervalIndex;
using verbs::detail::RetiredList;

class MrCacheMemory : public MrCacheTest {
 protected:
  static constexpr std::size_t kRanges = 600;  // of several chunks of the index
  void SetUp() override {
    MrCacheTest::SetUp();
    nic_->pin = false;
    // The device has memory of its own.
    static auto* const registers = fake().table.reg_mr;
    static auto* const deregisters = fake().table.dereg_mr;
    fake().table.reg_mr = [](ibv_pd* domain, void* address, std::size_t length, unsigned access) {
      const WithAllocations all{kAllAllocations};
      return registers(domain, address, length, access);
    };
    fake().table.dereg_mr = [](ibv_mr* region) {
      const WithAllocations all{kAllAllocations};
      return deregisters(region);
    };
  }
  void create_explicit(verbs::MrCacheOptions options = {}) {
    options.invalidation = Invalidation::kExplicit;
    create(options);
  }
  void acquire_all(const Mapping& memory) {
    for (std::size_t i = 0; i < kRanges; ++i) ASSERT_FALSE(acquire(memory.pages(i, 1)).empty());
    ASSERT_EQ(nic_->live(), kRanges);
  }
};

TEST_F(MrCacheMemory, InvalidateWithoutMemoryEndsWhatItTouches) {
  create_explicit();
  const Mapping memory{kRanges};
  acquire_all(memory);
  {
    const WithAllocations none{0};
    EXPECT_EQ(cache_->invalidate(memory.pages(100, 400)), 400U);
  }
  EXPECT_EQ(nic_->live(), kRanges - 400);
  for (std::size_t i = 0; i < kRanges; ++i)
    EXPECT_EQ(cache_->find(memory.pages(i, 1), Access::kLocalWrite).empty(), i >= 100 && i < 500)
        << i;
  for (std::size_t i = 0; i < kRanges; ++i) EXPECT_FALSE(acquire(memory.pages(i, 1)).empty());
  EXPECT_EQ(nic_->live(), kRanges);
  EXPECT_EQ(cache_->counters().misses, kRanges + 400);
}

TEST_F(MrCacheMemory, LongerRangeOverPlacesLeftWithoutMemoryIsFound) {
  create_explicit();
  const Mapping memory{kRanges};
  acquire_all(memory);
  {
    const WithAllocations none{0};
    EXPECT_EQ(cache_->invalidate(memory.bytes()), kRanges);
  }
  EXPECT_EQ(nic_->live(), 0U);
  ASSERT_FALSE(acquire(memory.bytes()).empty());
  EXPECT_EQ(nic_->live(), 1U);
  for (std::size_t i = 0; i < kRanges; ++i)
    EXPECT_FALSE(cache_->find(memory.pages(i, 1), Access::kLocalWrite).empty()) << i;
  EXPECT_EQ(cache_->invalidate(memory.pages(kRanges - 1, 1)), 1U);
  EXPECT_EQ(nic_->live(), 0U);
}

TEST_F(MrCacheMemory, TrimAndDestructionWithoutMemoryDeregisterAll) {
  create_explicit();
  const Mapping memory{kRanges};
  acquire_all(memory);
  {
    const WithAllocations none{0};
    EXPECT_EQ(cache_->trim(), kRanges);
  }
  EXPECT_EQ(nic_->live(), 0U);
  acquire_all(memory);
  {
    const WithAllocations none{0};
    cache_.reset();
  }
  EXPECT_EQ(nic_->live(), 0U);
}

TEST_F(MrCacheMemory, AcquireWithoutMemoryLeavesNothingHalfMade) {
  create_explicit();
  const Mapping memory{64};
  ASSERT_FALSE(acquire(memory.pages(0, 4)).empty());
  // The longer range replaces the one inside it; each time one allocation more succeeds.
  bool kept = false;
  for (int allocations = 0; allocations < 40 && !kept; ++allocations) {
    ASSERT_FALSE(acquire(memory.pages(8, 4)).empty());
    {
      const WithAllocations some{allocations};
      const auto lease = cache_->acquire(memory.pages(6, 8), Access::kLocalWrite);
      EXPECT_TRUE(lease.ok() || lease.error().code() == Code::kOutOfMemory);
    }
    kept = !cache_->find(memory.pages(6, 8), Access::kLocalWrite).empty();
    const auto counters = cache_->counters();
    EXPECT_EQ(counters.pinned_registrations, nic_->live()) << allocations;
    EXPECT_LE(nic_->live(), 2U);
    EXPECT_FALSE(cache_->find(memory.pages(0, 4), Access::kLocalWrite).empty());
  }
  EXPECT_TRUE(kept);
  cache_->invalidate(memory.bytes());
  EXPECT_EQ(nic_->live(), 0U);
}

class IndexMemory : public ::testing::Test {
 protected:
  void insert(std::size_t count) {
    items_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      items_[i] = {(i + 1) * 100, (i + 1) * 100 + 150};  // each reaches into the next one
      index_.insert(items_[i], retired_);
    }
  }
  void erase_without_memory(std::size_t first, std::size_t count) {
    const WithAllocations none{0};
    for (std::size_t i = first; i < first + count; ++i) index_.erase(items_[i], retired_);
  }
  [[nodiscard]] std::vector<std::size_t> touching(std::uintptr_t begin, std::uintptr_t end) const {
    std::vector<std::size_t> all;
    index_.for_each_touching(begin, end, [&](Interval& item) {
      all.push_back(static_cast<std::size_t>(&item - items_.data()));
    });
    return all;
  }
  std::vector<Interval> items_;
  RetiredList retired_;
  IntervalIndex index_;
};

TEST_F(IndexMemory, WhatIsBehindAnErasedPlaceIsFound) {
  insert(1000);
  erase_without_memory(500, 1);
  EXPECT_EQ(index_.find(50'100, 50'150), items_.data() + 499);
  EXPECT_EQ(index_.find(50'100, 50'151), nullptr);
  EXPECT_EQ(index_.find(50'160, 50'190), nullptr);
  EXPECT_EQ(touching(50'150, 50'200), std::vector<std::size_t>{});
  EXPECT_EQ(touching(50'149, 50'201), (std::vector<std::size_t>{499, 501}));
}

TEST_F(IndexMemory, ErasedPlacesGoWithTheNextCopy) {
  insert(1000);
  erase_without_memory(0, 1000);
  EXPECT_EQ(index_.find(50'100, 50'150), nullptr);
  EXPECT_TRUE(touching(0, UINTPTR_MAX).empty());
  Interval wide{50, 200'000};
  index_.insert(wide, retired_);
  EXPECT_EQ(index_.find(99'000, 150'000), &wide);
  EXPECT_EQ(touching(99'000, 99'001).size(), 1U);
  index_.erase(wide, retired_);
  EXPECT_EQ(index_.find(99'000, 150'000), nullptr);
  index_.insert(items_[7], retired_);
  EXPECT_EQ(index_.find(800, 950), items_.data() + 7);
}

TEST_F(IndexMemory, InsertThatThrowsChangesNothing) {
  insert(600);
  Interval more{1'000'000, 1'000'010};
  for (int allocations = 0; allocations < 3; ++allocations) {
    const WithAllocations some{allocations};
    EXPECT_THROW(index_.insert(more, retired_), std::bad_alloc) << allocations;
  }
  EXPECT_EQ(index_.find(1'000'000, 1'000'010), nullptr);
  EXPECT_EQ(touching(0, UINTPTR_MAX).size(), 600U);
}

}  // namespace
}  // namespace remora::test
