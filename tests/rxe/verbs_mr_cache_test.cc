// The MR cache over a real device: after each change of a mapping, what the device reads and writes
// through a lease is what the program sees.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <malloc.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <remora/sanitizers.h>

#include "memory_monitor.h"
#include "support/eventually.h"
#include "support/mr_cache_steps.h"
#include "verbs_loopback.h"

namespace remora::test {
namespace {

constexpr std::size_t kCachedBytes = 16384;
constexpr std::size_t kCachedPage = 4096;

class VerbsMrCache : public VerbsLoopback {
 protected:
  void SetUp() override {
    VerbsLoopback::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    auto cache = verbs::MrCache::create(rig_->domain);
    ASSERT_OK(cache);
    cache_.emplace(std::move(*cache));
    EXPECT_TRUE(cache_->automatic()) << cache_->why_not_automatic();
  }
  void TearDown() override {
    cache_.reset();
    VerbsLoopback::TearDown();
  }
  static std::byte* map(std::byte* at = nullptr) {
    void* const mapped =
        ::mmap(at, kCachedBytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED : 0), -1, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    return static_cast<std::byte*>(mapped);
  }
  /// The device writes out what stands at `at`, and reads something else into it.
  void expect_fresh(std::byte* at) {
    const auto lease = cache_->acquire({at, kCachedBytes}, verbs::Access::kLocalWrite);
    ASSERT_OK(lease);
    expect_fresh_through(*lease);
  }
  /// Until it is found in the cache: before the monitor has told of a change nothing is kept.
  void keep(std::byte* at) {
    const auto before = cache_->counters().hits;
    EXPECT_TRUE(eventually([&] {
      expect_fresh(at);
      return cache_->counters().hits != before;
    }));
  }
  void expect_fresh_through(const verbs::MrLease& lease) { EXPECT_TRUE(moves(lease)); }
  /// Through each of the lease's pieces, both ways.
  bool moves(const verbs::MrLease& lease) {
    const std::span<std::byte> bytes = lease.bytes();
    std::memset(bytes.data(), static_cast<int>(++value_), bytes.size());
    rig_->fill(kRoom, bytes.size(), value_ + 1);
    return move(lease, true) && std::memcmp(bytes.data(), rig_->at(0), bytes.size()) == 0 &&
           move(lease, false) && std::memcmp(bytes.data(), rig_->at(kRoom), bytes.size()) == 0;
  }
  bool move(const verbs::MrLease& lease, bool out) {
    auto batch = pair_->start();
    const auto begin = reinterpret_cast<std::uintptr_t>(lease.bytes().data());
    for (std::size_t i = 0; i < lease.piece_count(); ++i) {
      const verbs::MrPiece piece = lease.piece(i);
      const std::uint64_t offset = piece.address - begin;
      const auto here = lease.slice(offset, piece.length_bytes);
      if (out)
        batch.write(1, here, remote(offset, piece.length_bytes));
      else
        batch.read(2, here, remote(kRoom + offset, piece.length_bytes));
    }
    if (const Status posted = batch.post(); !posted) {
      ADD_FAILURE() << posted.error();
      return false;
    }
    const auto done = rig_->complete(lease.piece_count());
    return done.size() == lease.piece_count() &&
           std::all_of(done.begin(), done.end(), [](const auto& each) { return each.ok(); });
  }

  std::optional<verbs::MrCache> cache_;
  static constexpr std::size_t kRoom =
      std::size_t{24} * 1024;  ///< of what goes out, then of what comes in
  unsigned value_ = 0;
};

TEST_F(VerbsMrCache, EveryChangeOfAMapping) {
  std::byte* at = map();
  const std::vector<std::function<void()>> changes{
      [] {},
      [&] {
        ::munmap(at, kCachedBytes);
        map(at);
      },
      [&] {
        std::thread{[&] { ::munmap(at, kCachedBytes); }}.join();
        map(at);
      },
      [&] { map(at); },
      [&] {
        ::munmap(at, kCachedPage);
        map(at);
      },
      [&] {
        (void)::mmap(at + kCachedPage, kCachedPage, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      },
      [&] {
        (void)::mmap(at + kCachedBytes - kCachedPage, kCachedPage, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      },
      [&] {
        map(at);  // one mapping again
        expect_fresh(at);
        std::byte* const other = map();
        ASSERT_EQ(::mremap(at, kCachedBytes, kCachedBytes, MREMAP_MAYMOVE | MREMAP_FIXED, other),
                  other);
        map(at);
        expect_fresh(other);
        ::munmap(other, kCachedBytes);
      },
      [&] { ::madvise(at, kCachedPage, MADV_DONTNEED); },
      [&] { ::madvise(at, kCachedBytes, MADV_FREE); },
  };
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < changes.size(); ++i) {
      SCOPED_TRACE(i);
      keep(at);
      changes[i]();
      expect_fresh(at);
    }
    // What was discarded is not kept for a while.
    std::this_thread::sleep_for(std::chrono::milliseconds{150});
  }
  EXPECT_GT(cache_->counters().hits, 10U);
  EXPECT_TRUE(eventually([&] {
    const auto counters = cache_->counters();
    return counters.unmapped >= 3 && counters.remapped >= 1 && counters.removed >= 1;
  }));
  ::munmap(at, kCachedBytes);
}

std::atomic<bool> g_rxe_monitor_held{false};
void hold_rxe_monitor() {
  while (g_rxe_monitor_held) std::this_thread::sleep_for(std::chrono::microseconds{100});
}

TEST_F(VerbsMrCache, AddressThatAnotherThreadGetsBeforeTheReportIsRead) {
  for (int i = 0; i < 10; ++i) {
    std::byte* const at = map();
    expect_fresh(at);
    expect_fresh(at);
    const auto hits = cache_->counters().hits;
    g_rxe_monitor_held = true;
    verbs::detail::MemoryMonitor::before_read = &hold_rxe_monitor;
    std::thread unmapper{[&] { ::munmap(at, kCachedBytes); }};
    unsigned char present = 0;
    while (::mincore(at, kCachedPage, &present) == 0 || errno != ENOMEM) std::this_thread::yield();
    map(at);
    expect_fresh(at);
    EXPECT_EQ(cache_->counters().hits, hits);
    g_rxe_monitor_held = false;
    unmapper.join();
    verbs::detail::MemoryMonitor::before_read = nullptr;
    expect_fresh(at);
    ::munmap(at, kCachedBytes);
  }
}

TEST_F(VerbsMrCache, LeaseOfWhatWasUnmappedReachesNothingNew) {
  std::byte* const at = map();
  const auto lease = cache_->acquire({at, kCachedBytes}, verbs::Access::kLocalWrite);
  ASSERT_OK(lease);
  ::munmap(at, kCachedBytes);
  map(at);
  rig_->fill(kRoom, kCachedBytes, 7);
  EXPECT_TRUE(move(*lease, false)) << "its pages are pinned, though they are unmapped";
  EXPECT_TRUE(
      std::all_of(at, at + kCachedBytes, [](std::byte each) { return each == std::byte{}; }));
  expect_fresh(at);
  ::munmap(at, kCachedBytes);
}

TEST_F(VerbsMrCache, MappingsThatGrowAndThatTouch) {
  std::byte* const at = map();
  ::munmap(at + kCachedBytes / 2, kCachedBytes / 2);
  {
    const auto half = cache_->acquire({at, kCachedBytes / 2}, verbs::Access::kLocalWrite);
    ASSERT_OK(half);
    expect_fresh_through(*half);
  }
  void* const grown = ::mremap(at, kCachedBytes / 2, kCachedBytes, 0);
  if (grown == at) expect_fresh(at);
  // The second half anew, with advice of its own: two mappings.
  ASSERT_NE(::mmap(at + kCachedBytes / 2, kCachedBytes / 2, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  ASSERT_EQ(::madvise(at + kCachedBytes / 2, kCachedBytes / 2, MADV_DONTDUMP), 0);
  expect_fresh(at);
  expect_fresh(at);
  ::munmap(at + kCachedBytes / 2, kCachedBytes / 2);
  ASSERT_NE(::mmap(at + kCachedBytes / 2, kCachedBytes / 2, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  expect_fresh(at);
  ::munmap(at, kCachedBytes);
}

TEST_F(VerbsMrCache, Brk) {
  ::mallopt(M_TOP_PAD, 16 << 20);  // so that malloc does not move the break meanwhile
  std::free(std::malloc(100'000));
  const std::size_t odd = reinterpret_cast<std::uintptr_t>(::sbrk(0)) % kCachedPage;
  if (odd != 0) ::sbrk(static_cast<std::intptr_t>(kCachedPage - odd));
  constexpr auto kGrown = static_cast<std::intptr_t>(kCachedBytes);
  auto* const at = static_cast<std::byte*>(::sbrk(kGrown));
  for (int i = 0; i < 5; ++i) {
    keep(at);
    if (::sbrk(0) != at + kCachedBytes) GTEST_SKIP() << "malloc moved the break";
    ::sbrk(-kGrown);
    ASSERT_EQ(::sbrk(kGrown), at);
    expect_fresh(at);
  }
  EXPECT_TRUE(eventually([&] { return cache_->counters().unmapped >= 5; }));
}

TEST_F(VerbsMrCache, SharedMemoryIsNotKept) {
  std::byte* at = nullptr;
  for (int i = 0; i < 3; ++i) {
    const int segment = ::shmget(IPC_PRIVATE, kCachedBytes, IPC_CREAT | 0600);
    ASSERT_GE(segment, 0);
    at = static_cast<std::byte*>(::shmat(segment, at, 0));
    ::shmctl(segment, IPC_RMID, nullptr);
    expect_fresh(at);
    expect_fresh(at);
    ::shmdt(at);
  }
  EXPECT_EQ(cache_->counters().hits, 0U);
}

TEST_F(VerbsMrCache, ForkThenWriteInBoth) {
  std::byte* const at = map();
  const auto lease = cache_->acquire({at, kCachedBytes}, verbs::Access::kLocalWrite);
  ASSERT_OK(lease);
  expect_fresh_through(*lease);
  const pid_t child = ::fork();
  if (child == 0) {
    std::memset(at, 0xee, kCachedBytes);
    const auto refused = cache_->acquire({at, kCachedBytes}, verbs::Access::kLocalWrite);
    ::_exit(!refused.ok() && refused.error().code() == Code::kClosed ? 0 : 1);
  }
  for (int i = 0; i < 20; ++i) expect_fresh_through(*lease);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  expect_fresh_through(*lease);
  expect_fresh(at);
  EXPECT_EQ(cache_->counters().hits, 1U);
  ::munmap(at, kCachedBytes);
}

TEST_F(VerbsMrCache, TenThousandStepsOfFourThreads) {
  constexpr std::size_t kPages = kRoom / kCachedPage;
  auto small = verbs::MrCache::create(
      rig_->domain,
      {.bytes_max = 80 * kCachedPage, .registrations_max = 24, .piece_bytes = 4 * kCachedPage});
  ASSERT_OK(small);
  std::mutex one_at_a_time;  // the queue pair and its buffers
  MrCacheSteps steps{*small, kPages, [&](const verbs::MrLease& lease) {
                       const std::lock_guard lock{one_at_a_time};
                       return moves(lease);
                     }};
  steps.run(4, 2500);
  const auto counters = small->counters();
  EXPECT_EQ(steps.stale(), 0);
  EXPECT_EQ(steps.failed(), 0);
  EXPECT_GT(steps.checked(), 3000);
  EXPECT_GT(counters.hits, 100U);
  EXPECT_GT(counters.unmapped, 10U);
}

/// A block that glibc has mapped by itself: where tests before have left free memory in the heap,
/// it serves large blocks from there. A sanitizer's malloc maps all of them.
std::byte* mapped_block(std::size_t bytes) {
  std::vector<void*> from_the_heap;
  void* block = std::malloc(bytes);
#if !REMORA_ADDRESS_SANITIZER && !REMORA_THREAD_SANITIZER
  constexpr std::size_t kIsMapped = 2;  // in the size that stands before the block
  while ((static_cast<std::size_t*>(block)[-1] & kIsMapped) == 0) {
    from_the_heap.push_back(block);
    block = std::malloc(bytes);
  }
#endif
  for (void* each : from_the_heap) std::free(each);
  return static_cast<std::byte*>(block);
}

TEST_F(VerbsMrCache, ReallocOfLargeBlocks) {
  ::mallopt(M_MMAP_THRESHOLD, 128 << 10);  // and it does not grow with what is freed
  for (int i = 0; i < 10; ++i) {
    std::byte* block = mapped_block(std::size_t{300} << 10U);
    expect_fresh(block);
    expect_fresh(block);
    block = static_cast<std::byte*>(std::realloc(block, std::size_t{900} << 10U));
    expect_fresh(block);
    expect_fresh(block);
    std::free(block);
  }
  EXPECT_GT(cache_->counters().hits, 0U);  // it was kept, and it changed
#if !REMORA_ADDRESS_SANITIZER && !REMORA_THREAD_SANITIZER
  EXPECT_TRUE(eventually([&] {  // a sanitizer's malloc keeps the pages
    return cache_->counters().remapped + cache_->counters().unmapped > 0;
  }));
#endif
}

}  // namespace
}  // namespace remora::test
