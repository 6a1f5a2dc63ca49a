// The monitor's thread neither allocates nor frees: either may change a mapping that it watches,
// and would wait for itself. A program of its own, whose malloc and free count.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include "fake_nic.h"
#include "memory_monitor.h"

extern "C" {
// glibc's own, under the names that a malloc of the program's is made of.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* block, std::size_t size);
void __libc_free(void* block);
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
}

namespace {
thread_local bool t_is_monitor = false;
std::atomic<int> g_calls_of_the_monitor{0};
void count_call() noexcept {
  if (t_is_monitor) g_calls_of_the_monitor.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

extern "C" {
void* malloc(std::size_t size) {
  count_call();
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  count_call();
  return __libc_calloc(count, size);
}
void* realloc(void* block, std::size_t size) {
  count_call();
  return __libc_realloc(block, size);
}
void free(void* block) {
  if (block != nullptr) count_call();
  __libc_free(block);
}
}

namespace remora::test {
namespace {

bool g_allocates = false;

void know_the_monitor() {
  t_is_monitor = true;
  if (g_allocates) {
    auto* volatile block = static_cast<char*>(std::malloc(16));
    std::free(block);
  }
}

class MrCacheMonitor : public MrCacheTest {
 protected:
  void SetUp() override {
    MrCacheTest::SetUp();
    create();
    ASSERT_TRUE(cache_->automatic()) << cache_->why_not_automatic();
    g_calls_of_the_monitor = 0;
    verbs::detail::MemoryMonitor::before_read = &know_the_monitor;
  }
  void TearDown() override {
    g_allocates = false;
    verbs::detail::MemoryMonitor::before_read = nullptr;
    MrCacheTest::TearDown();
  }
};

TEST_F(MrCacheMonitor, CallsOfItAreCounted) {
  g_allocates = true;
  Mapping memory{2};
  keep(memory.bytes());
  memory.unmap();
  EXPECT_TRUE(eventually([&] { return cache_->counters().unmapped != 0; }));
  EXPECT_GE(g_calls_of_the_monitor, 2);
}

TEST_F(MrCacheMonitor, AllocatesAndFreesNothing) {
  auto other = verbs::MrCache::create(domain_).value();
  for (int round = 0; round < 20; ++round) {
    Mapping memory{64};
    std::vector<verbs::MrLease> held;
    for (std::size_t i = 0; i < 64; i += 4) {
      keep(memory.pages(i, 4));
      if (i % 8 == 0) held.push_back(acquire(memory.pages(i, 4)));
      static_cast<void>(other.acquire(memory.pages(i, 4), verbs::Access::kLocalWrite).value());
    }
    ::madvise(memory.data(), 4 * kPage, MADV_DONTNEED);
    ::madvise(memory.data() + 8 * kPage, 4 * kPage, MADV_FREE);
    Mapping target{4};
    ASSERT_NE(::mremap(memory.data() + 16 * kPage, 4 * kPage, 4 * kPage,
                       MREMAP_MAYMOVE | MREMAP_FIXED, target.data()),
              MAP_FAILED);
    static_cast<void>(::mmap(memory.data() + 32 * kPage, 4 * kPage, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    memory.unmap();
  }
  EXPECT_TRUE(eventually([&] {
    const auto counters = cache_->counters();
    return counters.unmapped > 100 && counters.remapped >= 10 && counters.removed >= 20;
  }));
  EXPECT_EQ(g_calls_of_the_monitor, 0);
}

}  // namespace
}  // namespace remora::test
