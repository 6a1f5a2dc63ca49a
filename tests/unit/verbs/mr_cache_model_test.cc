// Many threads on one cache.

#include <atomic>
#include <random>
#include <thread>

#include "fake_nic.h"
#include "support/mr_cache_steps.h"

namespace remora::test {
namespace {

class MrCacheModel : public MrCacheTest {
 protected:
  static constexpr std::uint64_t kRegistrationsMax = 24;
  static constexpr std::uint64_t kBytesMax = 160 * kPage;
};

TEST_F(MrCacheModel, TenThousandStepsOfFourThreads) {
  create(
      {.bytes_max = kBytesMax, .registrations_max = kRegistrationsMax, .piece_bytes = 8 * kPage});
  ASSERT_TRUE(cache_->automatic()) << cache_->why_not_automatic();
  MrCacheSteps steps{*cache_, 12, [this](const verbs::MrLease& lease) {
                       stamp(lease.bytes());
                       EXPECT_LE(nic_->live(), kRegistrationsMax);
                       EXPECT_LE(nic_->live_bytes(), kBytesMax);
                       return nic_->fresh(lease);
                     }};
  steps.run(4, 2500);
  const auto counters = cache_->counters();
  EXPECT_EQ(steps.stale(), 0);
  EXPECT_EQ(steps.failed(), 0);
  EXPECT_GT(steps.checked(), 3000);
  EXPECT_GT(counters.hits, 100U);
  EXPECT_GT(counters.unmapped, 10U);
  RecordProperty("hits", static_cast<int>(counters.hits));
  std::printf(
      "checked %d, refused %d, hits %lu, misses %lu, unkept %lu, unmapped %lu, remapped "
      "%lu, removed %lu, evictions %lu\n",
      steps.checked(), steps.refused(), counters.hits, counters.misses, counters.unkept,
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
