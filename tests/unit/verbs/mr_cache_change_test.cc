// Mappings that change under the cache: each of these has corrupted data in some library.

#include <array>
#include <atomic>
#include <cstdlib>
#include <fcntl.h>
#include <malloc.h>
#include <memory>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <remora/sanitizers.h>

#include "fake_nic.h"
#include "memory_monitor.h"
#include "reader_epoch.h"

namespace remora::test {
namespace {

class MrCacheChange : public MrCacheTest {
 protected:
  void SetUp() override {
    MrCacheTest::SetUp();
    create();
    ASSERT_TRUE(cache_->automatic()) << cache_->why_not_automatic();
  }
  /// What the reaper has to do is done.
  void wait_for_live(std::size_t count) {
    EXPECT_TRUE(eventually([&] { return nic_->live() == count; })) << nic_->live();
  }
  /// The monitor counts after it has read, which is what the thread that unmaps waits for.
  void wait_for_unmapped(std::size_t count) {
    EXPECT_TRUE(eventually([&] { return cache_->counters().unmapped >= count; }));
    EXPECT_EQ(cache_->counters().unmapped, count);
  }
};

bool wait_gone(std::byte* page) {
  unsigned char present = 0;
  return eventually([&] { return ::mincore(page, kPage, &present) != 0 && errno == ENOMEM; });
}

TEST_F(MrCacheChange, UnmapAndMapAgainByTheSameThread) {
  Mapping memory{4};
  std::byte* const at = memory.data();
  for (int i = 0; i < 50; ++i) {
    expect_fresh({at, 4 * kPage});
    memory.unmap();
    new (&memory) Mapping{4, at};
  }
  EXPECT_TRUE(eventually([&] { return cache_->counters().unmapped >= 1; }));
  EXPECT_EQ(cache_->counters().hits, 0U);
}

TEST_F(MrCacheChange, UnmapAndMapAgainByAnotherThreadWhileTheMonitorIsDelayed) {
  for (int i = 0; i < 20; ++i) {
    Mapping memory{4};
    std::byte* const at = memory.data();
    keep(memory.bytes());
    const auto hits = cache_->counters().hits;
    std::thread unmapper;
    {
      const DelayedMonitor delayed;
      unmapper = std::thread{[&] { memory.unmap(); }};
      ASSERT_TRUE(wait_gone(at));
      const Mapping again{4, at};  // before the report is read
      expect_fresh(again.bytes());
      EXPECT_EQ(cache_->counters().hits, hits);
    }
    unmapper.join();
  }
}

TEST_F(MrCacheChange, UnmapIsNoticedWithoutAnAcquire) {
  Mapping memory{4};
  keep(memory.bytes());
  memory.unmap();
  wait_for_live(0);
  EXPECT_EQ(cache_->counters().pinned_bytes, 0U);
}

TEST_F(MrCacheChange, MapOverIt) {
  const Mapping memory{4};
  keep(memory.bytes());
  ASSERT_NE(::mmap(memory.data(), 4 * kPage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  expect_fresh(memory.bytes());
  wait_for_unmapped(1);
}

TEST_F(MrCacheChange, PartsUnmappedAtTheFrontInTheMiddleAtTheBack) {
  for (const std::size_t part : {0U, 3U, 7U}) {
    const Mapping memory{8};
    keep(memory.bytes());
    std::byte* const at = memory.data() + part * kPage;
    ::munmap(at, kPage);
    const auto refused = cache_->acquire(memory.bytes(), verbs::Access::kLocalWrite);
    EXPECT_FALSE(refused.ok());  // it has a hole
    Mapping again{1, at};
    expect_fresh(memory.bytes());
    again.forget();
  }
}

TEST_F(MrCacheChange, UnmapWhileLeased) {
  Mapping memory{4};
  std::byte* const at = memory.data();
  auto lease = acquire(memory.bytes());
  stamp(memory.bytes());
  const auto seen = nic_->read(lease);
  memory.unmap();
  const Mapping again{4, at};
  EXPECT_EQ(nic_->read(lease), seen);  // its pages stay pinned, though they are unmapped
  expect_fresh(again.bytes());
  lease.drop();
  expect_fresh(again.bytes());
}

TEST_F(MrCacheChange, OneOfTwoMappingsThatTouch) {
  const Mapping memory{4};
  keep(memory.pages(0, 2));
  keep(memory.pages(2, 2));
  ::munmap(memory.data() + 2 * kPage, 2 * kPage);
  keep(memory.pages(0, 2));
  wait_for_unmapped(1);
  Mapping again{2, memory.data() + 2 * kPage};
  expect_fresh(again.bytes());
  again.forget();
}

TEST_F(MrCacheChange, MremapMoves) {
  Mapping memory{4};
  std::byte* const from = memory.data();
  keep(memory.bytes());
  Mapping target{4};
  void* const moved =
      ::mremap(from, 4 * kPage, 4 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, target.data());
  ASSERT_EQ(moved, target.data());
  memory.forget();
  expect_fresh(target.bytes());
  const Mapping again{4, from};
  expect_fresh(again.bytes());
  EXPECT_GE(cache_->counters().remapped, 1U);
}

TEST_F(MrCacheChange, MremapGrowsInPlace) {
  Mapping memory{8};
  ::munmap(memory.data() + 4 * kPage, 4 * kPage);
  keep(memory.pages(0, 4));
  void* const grown = ::mremap(memory.data(), 4 * kPage, 8 * kPage, 0);
  if (grown == MAP_FAILED) GTEST_SKIP() << "another thread took the place";
  expect_fresh(memory.pages(0, 4));
  expect_fresh(memory.bytes());
  ASSERT_NE(::mremap(memory.data(), 8 * kPage, 2 * kPage, 0), MAP_FAILED);
  expect_fresh(memory.pages(0, 2));
}

TEST_F(MrCacheChange, DontNeedGivesNewPages) {
  const Mapping memory{4};
  keep(memory.bytes());
  const auto unkept = cache_->counters().unkept;
  ASSERT_EQ(::madvise(memory.data() + kPage, kPage, MADV_DONTNEED), 0);
  EXPECT_EQ(memory.data()[kPage], std::byte{0});
  expect_fresh(memory.bytes());
  EXPECT_EQ(cache_->counters().removed, 1U);
  EXPECT_EQ(cache_->counters().unkept, unkept + 1);  // its pages may be going
}

TEST_F(MrCacheChange, Free) {
  const Mapping memory{4};
  keep(memory.bytes());
  ASSERT_EQ(::madvise(memory.data(), 2 * kPage, MADV_FREE), 0);
  expect_fresh(memory.bytes());
  EXPECT_EQ(cache_->counters().removed, 1U);
}

TEST_F(MrCacheChange, RemoveOfSharedMemory) {
  const int descriptor = ::memfd_create("mr_cache", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(descriptor, 4 * kPage), 0);
  auto* const at = static_cast<std::byte*>(
      ::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0));
  const std::span<std::byte> bytes{at, 4 * kPage};
  expect_fresh(bytes);
  ASSERT_EQ(::madvise(at, 4 * kPage, MADV_REMOVE), 0);
  expect_fresh(bytes);
  // No report comes of these, so nothing may have been kept.
  ASSERT_EQ(::fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4 * kPage), 0);
  expect_fresh(bytes);
  ASSERT_EQ(::ftruncate(descriptor, 0), 0);
  ASSERT_EQ(::ftruncate(descriptor, 4 * kPage), 0);
  expect_fresh(bytes);
  EXPECT_EQ(cache_->counters().hits, 0U);
  EXPECT_EQ(cache_->counters().unkept, 4U);
  ::munmap(at, 4 * kPage);
  ::close(descriptor);
}

TEST_F(MrCacheChange, ShmdtAndAnotherSegmentAtTheSamePlace) {
  std::byte* at = nullptr;
  for (int i = 0; i < 2; ++i) {
    const int segment = ::shmget(IPC_PRIVATE, 4 * kPage, IPC_CREAT | 0600);
    ASSERT_GE(segment, 0);
    at = static_cast<std::byte*>(::shmat(segment, at, 0));
    ::shmctl(segment, IPC_RMID, nullptr);
    ASSERT_NE(reinterpret_cast<std::intptr_t>(at), -1);
    expect_fresh({at, 4 * kPage});
    expect_fresh({at, 4 * kPage});
    ::shmdt(at);  // which is not reported
  }
  EXPECT_EQ(cache_->counters().hits, 0U);
}

TEST_F(MrCacheChange, Brk) {
#if REMORA_ADDRESS_SANITIZER || REMORA_THREAD_SANITIZER
  GTEST_SKIP() << "the sanitizer's memory lies there";
#endif
  ::mallopt(M_TOP_PAD, 16 << 20);  // so that malloc does not move the break meanwhile
  std::free(std::malloc(100'000));
  const std::size_t odd = reinterpret_cast<std::uintptr_t>(::sbrk(0)) % kPage;
  if (odd != 0) ::sbrk(static_cast<std::intptr_t>(kPage - odd));
  auto* const at = static_cast<std::byte*>(::sbrk(4 * kPage));
  const std::span<std::byte> bytes{at, 4 * kPage};
  keep(bytes);
  for (int i = 0; i < 10; ++i) {
    if (::sbrk(0) != at + 4 * kPage) GTEST_SKIP() << "malloc moved the break";
    ::sbrk(-4 * static_cast<std::intptr_t>(kPage));
    ASSERT_EQ(::sbrk(4 * kPage), at);
    expect_fresh(bytes);
  }
  EXPECT_TRUE(eventually([&] { return cache_->counters().unmapped >= 1; }));
}

TEST_F(MrCacheChange, ReallocOfLargeBlocks) {
  ::mallopt(M_MMAP_THRESHOLD, 128 << 10);  // and it does not grow with what is freed
#if !REMORA_ADDRESS_SANITIZER && !REMORA_THREAD_SANITIZER
  // Until malloc() maps a block: before, it takes memory that earlier tests of the process have
  // freed, whose mapping does not change.
  std::vector<std::unique_ptr<void, decltype(&std::free)>> held;
  for (const auto mapped = ::mallinfo2().hblks;
       ::mallinfo2().hblks == mapped && held.size() < 1000;)
    held.emplace_back(std::malloc(200 << 10), &std::free);
#endif
  for (int i = 0; i < 30; ++i) {
    std::size_t size = 200 << 10;
    auto* block = static_cast<std::byte*>(std::malloc(size));
    for (; size < 900 << 10; size += size / 2) {
      block = static_cast<std::byte*>(std::realloc(block, size));
      expect_fresh({block, size});
      expect_fresh({block, size});
    }
    std::free(block);
  }
  EXPECT_GT(cache_->counters().hits, 0U);  // it was kept, and it changed
#if !REMORA_ADDRESS_SANITIZER && !REMORA_THREAD_SANITIZER
  EXPECT_TRUE(eventually([&] {  // a sanitizer's malloc keeps the pages
    return cache_->counters().remapped + cache_->counters().unmapped > 0;
  }));
#endif
}

TEST_F(MrCacheChange, IsReportedHoweverManyThreadsRead) {
  cache_.reset();
  std::atomic<std::size_t> ready{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (std::size_t i = 0; i < verbs::detail::ReaderEpoch::kReadersMax; ++i)
    readers.emplace_back([&] {
      static_cast<void>(verbs::detail::ReaderEpoch::slot());
      ++ready;
      stop.wait(false);
    });
  while (ready < readers.size()) std::this_thread::yield();
  create();
  Mapping memory{4};
  std::byte* const at = memory.data();
  keep(memory.bytes());
  memory.unmap();
  const Mapping again{4, at};
  expect_fresh(again.bytes());
  stop = true;
  stop.notify_all();
  for (auto& reader : readers) reader.join();
}

// Of a watched range, after the last cache is gone: by a copy of the userfaultfd the kernel would
// wait for a reader.
TEST_F(MrCacheChange, UnmapAfterTheCacheWhileAChildLives) {
  Mapping memory{4};
  keep(memory.bytes());
  std::array<int, 2> alive{};
  ASSERT_EQ(::pipe(alive.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(alive[1]);
    char end = 0;
    static_cast<void>(!::read(alive[0], &end, 1));  // until the parent closes its end, or dies
    ::_exit(0);
  }
  ASSERT_GT(child, 0);
  cache_.reset();
  ::alarm(20);
  memory.unmap();
  ::alarm(0);
  ::close(alive[1]);
  ::close(alive[0]);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(MrCacheChange, ForkedChildMakesACacheOfItsOwn) {
  Mapping memory{4};
  keep(memory.bytes());
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    auto own = verbs::MrCache::create(open().allocate_domain().value());
    if (!own.ok() || !own->automatic()) ::_exit(1);
    Mapping theirs{4};
    std::byte* const at = theirs.data();
    const auto sees = [&](std::span<std::byte> bytes) {
      const auto lease = own->acquire(bytes, verbs::Access::kLocalWrite);
      stamp(bytes);
      return lease.ok() && nic_->fresh(*lease);
    };
    if (!sees({at, 4 * kPage})) ::_exit(2);
    if (!kept(*own, {at, 4 * kPage})) ::_exit(3);
    theirs.unmap();
    const Mapping again{4, at};
    if (!sees(again.bytes())) ::_exit(4);
    if (!eventually([&] { return own->counters().unmapped == 1; })) ::_exit(5);
    ::_exit(0);
  }
  ASSERT_GT(child, 0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(MrCacheChange, TwoCachesHearOfIt) {
  auto other = verbs::MrCache::create(domain_).value();
  Mapping memory{2};
  keep(memory.bytes());
  EXPECT_TRUE(kept(other, memory.bytes()));
  memory.unmap();
  wait_for_live(0);
  wait_for_unmapped(1);
  EXPECT_TRUE(eventually([&] { return other.counters().unmapped == 1; }));
}

}  // namespace
}  // namespace remora::test
