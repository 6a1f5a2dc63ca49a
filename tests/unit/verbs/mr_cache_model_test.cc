// Threads that acquire, hold, unmap, move and discard at random: the model is memory itself.

#include <atomic>
#include <mutex>
#include <random>
#include <sys/mman.h>
#include <thread>

#include "fake_nic.h"

namespace remora::test {
namespace {

constexpr std::size_t kWindowPages = 12;

// A place that threads use in turn. What is unmapped may be taken by malloc: then it moves.
struct Window {
  std::mutex mutex;
  std::byte* at = nullptr;
  bool discards = false;  // then little in it is kept
  std::vector<verbs::MrLease> held;

  void map() {
    void* mapped = MAP_FAILED;
    if (at != nullptr)
      mapped = ::mmap(at, kWindowPages * kPage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (mapped == MAP_FAILED)
      mapped = ::mmap(nullptr, kWindowPages * kPage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    at = static_cast<std::byte*>(mapped);
  }
};

class MrCacheModel : public MrCacheTest {
 protected:
  void step(Window& window, std::mt19937& random) {
    const std::lock_guard lock{window.mutex};
    const std::size_t first = random() % kWindowPages;
    const std::size_t count = 1 + random() % (kWindowPages - first);
    std::byte* const at = window.at + first * kPage;
    switch (random() % 12) {
      case 0: ::munmap(window.at, kWindowPages * kPage); return window.map();
      case 1:
        static_cast<void>(::mmap(at, count * kPage, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
        return;
      case 2:
        if (window.discards)
          ::madvise(at, count * kPage, random() % 2 != 0 ? MADV_DONTNEED : MADV_FREE);
        return;
      case 3: {  // to another place and back
        void* const moved = ::mremap(window.at, kWindowPages * kPage, kWindowPages * kPage,
                                     MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
        if (moved != MAP_FAILED) ::munmap(moved, kWindowPages * kPage);
        return;
      }
      case 4: window.held.clear(); return;
      case 5: cache_->invalidate({at, count * kPage}); return;
      default: break;
    }
    const std::size_t odd = random() % 3 == 0 ? random() % 1000 : 0;
    acquire_fresh(window, {at + odd, count * kPage - 2 * odd}, random);
  }

  void acquire_fresh(Window& window, std::span<std::byte> bytes, std::mt19937& random) {
    auto lease = cache_->acquire(
        bytes, random() % 4 == 0 ? verbs::Access::kRemoteRead : verbs::Access::kLocalWrite);
    if (!lease) {
      EXPECT_EQ(lease.error().code(), Code::kOutOfMemory) << lease.error();  // leases hold it all
      ++refused_;
      return window.held.clear();
    }
    stamp(bytes);
    if (!nic_->fresh(*lease)) ++stale_;
    ++checked_;
    if (random() % 4 == 0 && window.held.size() < 4) window.held.push_back(std::move(*lease));
    EXPECT_LE(nic_->live(), kRegistrationsMax);
    EXPECT_LE(nic_->live_bytes(), kBytesMax);
  }

  static constexpr std::uint64_t kRegistrationsMax = 24;
  static constexpr std::uint64_t kBytesMax = 160 * kPage;
  std::atomic<int> stale_{0};
  std::atomic<int> checked_{0};
  std::atomic<int> refused_{0};
};

TEST_F(MrCacheModel, TenThousandStepsOfFourThreads) {
  create(
      {.bytes_max = kBytesMax, .registrations_max = kRegistrationsMax, .piece_bytes = 8 * kPage});
  ASSERT_TRUE(cache_->automatic()) << cache_->why_not_automatic();
  std::array<Window, 6> windows;
  for (Window& window : windows) window.map();
  windows[0].discards = true;
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937 random{seed};
      for (int i = 0; i < 2500; ++i) step(windows[random() % windows.size()], random);
    });
  for (auto& thread : threads) thread.join();
  for (Window& window : windows) {
    window.held.clear();
    ::munmap(window.at, kWindowPages * kPage);
  }
  const auto counters = cache_->counters();
  EXPECT_EQ(stale_, 0);
  EXPECT_GT(checked_, 3000);
  EXPECT_GT(counters.hits, 100U);
  EXPECT_GT(counters.unmapped, 10U);
  RecordProperty("hits", static_cast<int>(counters.hits));
  std::printf(
      "checked %d, refused %d, hits %lu, misses %lu, unkept %lu, unmapped %lu, remapped "
      "%lu, removed %lu, evictions %lu\n",
      checked_.load(), refused_.load(), counters.hits, counters.misses, counters.unkept,
      counters.unmapped, counters.remapped, counters.removed, counters.evictions);
}

// Hits of some threads while another unlinks and evicts: for the thread sanitizer.
TEST_F(MrCacheModel, HitsWhileTheIndexChanges) {
  nic_->pin = false;
  create({.registrations_max = 300, .invalidation = verbs::Invalidation::kExplicit});
  const Mapping memory{2000};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> leases{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 3; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937 random{seed};
      while (!stop) {
        const auto page = random() % 400 * (seed == 3 ? 5 : 1);
        const auto bytes = memory.pages(page, 1);
        const auto lease = acquire(bytes);
        const auto piece = lease.piece(0);
        ASSERT_EQ(piece.address, reinterpret_cast<std::uintptr_t>(bytes.data()));
        ASSERT_EQ(piece.length_bytes, kPage);
        ++leases;
      }
    });
  for (std::size_t i = 0; i < 2000; ++i)
    cache_->invalidate(memory.pages(i * 7 % 2000, std::min<std::size_t>(20, 2000 - i * 7 % 2000)));
  while (leases < 20000) std::this_thread::yield();
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_LE(nic_->live(), 300U);
}

}  // namespace
}  // namespace remora::test
