#pragma once

/// Threads that acquire, hold, unmap, move and discard at random, on one MrCache. The model is
/// memory itself: what a device sees through a lease must be what the program sees.

#include <array>
#include <atomic>
#include <functional>
#include <random>
#include <span>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include <remora/mutex.h>
#include <remora/verbs/mr_cache.h>

namespace remora::test {

class MrCacheSteps {
 public:
  /// Fills the lease's bytes, and says whether the device sees them. Called by several threads,
  /// which have the bytes to themselves meanwhile.
  using Fresh = std::function<bool(const verbs::MrLease& lease)>;

  /// Ranges are of `window_pages` at most.
  MrCacheSteps(verbs::MrCache& cache, std::size_t window_pages, Fresh fresh)
      : cache_{cache}, pages_{window_pages}, fresh_{std::move(fresh)} {
    for (Window& window : windows_) map(window);
    windows_[0].discards = true;
  }
  ~MrCacheSteps() {
    for (Window& window : windows_) {
      window.held.clear();
      ::munmap(window.at, pages_ * kPageBytes);
    }
  }
  MrCacheSteps(const MrCacheSteps&) = delete;
  MrCacheSteps& operator=(const MrCacheSteps&) = delete;

  /// Each thread by a seed of its own.
  void run(unsigned thread_count, int steps_each) {
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= thread_count; ++seed)
      threads.emplace_back([this, seed, steps_each] {
        std::mt19937 random{seed};
        for (int i = 0; i < steps_each; ++i) step(windows_[random() % windows_.size()], random);
      });
    for (std::thread& thread : threads) thread.join();
  }

  [[nodiscard]] int stale() const noexcept { return stale_; }
  [[nodiscard]] int checked() const noexcept { return checked_; }
  /// Acquires that failed with kOutOfMemory: leases held the budget.
  [[nodiscard]] int refused() const noexcept { return refused_; }
  /// Acquires that failed otherwise.
  [[nodiscard]] int failed() const noexcept { return failed_; }

 private:
  static constexpr std::size_t kPageBytes = 4096;

  /// A place that threads use in turn. What is unmapped may be taken by malloc: then it moves.
  struct Window {
    detail::Mutex mutex;
    std::byte* at REMORA_GUARDED_BY(mutex) = nullptr;
    bool discards = false;  ///< then little in it is kept
    std::vector<verbs::MrLease> held REMORA_GUARDED_BY(mutex);
  };

  void map(Window& window) const REMORA_REQUIRES(window.mutex) {
    void* mapped = MAP_FAILED;
    if (window.at != nullptr)
      mapped = ::mmap(window.at, pages_ * kPageBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (mapped == MAP_FAILED)
      mapped = ::mmap(nullptr, pages_ * kPageBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    window.at = static_cast<std::byte*>(mapped);
  }

  void step(Window& window, std::mt19937& random) {
    const detail::MutexLock lock{window.mutex};
    const std::size_t first = random() % pages_;
    const std::size_t count = 1 + random() % (pages_ - first);
    std::byte* const at = window.at + first * kPageBytes;
    switch (random() % 12) {
      case 0: ::munmap(window.at, pages_ * kPageBytes); return map(window);
      case 1:
        static_cast<void>(::mmap(at, count * kPageBytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
        return;
      case 2:
        if (window.discards)
          ::madvise(at, count * kPageBytes, random() % 2 != 0 ? MADV_DONTNEED : MADV_FREE);
        return;
      case 3: {  // to another place and back
        void* const moved = ::mremap(window.at, pages_ * kPageBytes, pages_ * kPageBytes,
                                     MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
        if (moved != MAP_FAILED) ::munmap(moved, pages_ * kPageBytes);
        return;
      }
      case 4: window.held.clear(); return;
      case 5: cache_.invalidate({at, count * kPageBytes}); return;
      default: break;
    }
    const std::size_t odd = random() % 3 == 0 ? random() % 1000 : 0;
    check(window, {at + odd, count * kPageBytes - 2 * odd}, random);
  }

  void check(Window& window, std::span<std::byte> bytes, std::mt19937& random)
      REMORA_REQUIRES(window.mutex) {
    auto lease = cache_.acquire(bytes, random() % 4 == 0
                                           ? verbs::Access::kLocalWrite | verbs::Access::kRemoteRead
                                           : verbs::Access::kLocalWrite);
    if (!lease) {
      ++(lease.error().code() == Code::kOutOfMemory ? refused_ : failed_);
      return window.held.clear();
    }
    if (!fresh_(*lease)) ++stale_;
    ++checked_;
    if (random() % 4 == 0 && window.held.size() < 4) window.held.push_back(std::move(*lease));
  }

  verbs::MrCache& cache_;
  std::size_t pages_;
  Fresh fresh_;
  std::array<Window, 6> windows_;
  std::atomic<int> stale_{0};
  std::atomic<int> checked_{0};
  std::atomic<int> refused_{0};
  std::atomic<int> failed_{0};
};

}  // namespace remora::test
