#include "server/memory/pool.h"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "support/mapping_flags.h"

namespace remora::detail {
namespace {

constexpr std::uint64_t kPage = config::kPoolPageBytes;

config::Pool options(std::uint64_t size_bytes, std::uint64_t piece_bytes) {
  return {.size_bytes = size_bytes,
          .piece_bytes = piece_bytes,
          .huge_pages = config::HugePages::kNever};
}
Deadline soon() { return Clock::now() + std::chrono::seconds{10}; }

std::uint64_t total(const RegionMemory& memory) {
  std::uint64_t sum = 0;
  for (const auto& stretch : memory.stretches()) sum += stretch.length_bytes;
  return sum;
}

/// Compares each byte with the one before it, and the first with 0: memcmp() is fast under
/// sanitizers.
bool is_zero(std::span<const std::byte> bytes) {
  return bytes.empty() || (bytes[0] == std::byte{0} &&
                           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

TEST(Pool, ExtentNeverCrossesAPiece) {
  auto pool = Pool::create(options(16 * kPage, 4 * kPage)).value();
  auto memory = pool->allocate(10 * kPage, false, soon()).value();
  ASSERT_EQ(memory->stretches().size(), 3U);
  for (const auto& stretch : memory->stretches()) EXPECT_LE(stretch.length_bytes, 4 * kPage);
  EXPECT_EQ(total(*memory), 10 * kPage);
}

/// A pool of ordinary pages instead would need 512 times the translations of a device.
TEST(Pool, PagesOfOneGiBThatAreNotReservedAreNamed) {
  constexpr std::uint64_t kMoreThanAnyMachine = 1ULL << 46U;
  config::Pool asked = options(kMoreThanAnyMachine, config::kGibPageBytes);
  asked.huge_pages = config::HugePages::kRequire1GiB;
  const auto refused = Pool::create(asked);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kOutOfMemory) << refused.error();
  EXPECT_NE(refused.error().message().find("hugepages-1048576kB/nr_hugepages"), std::string::npos)
      << refused.error();
  EXPECT_EQ(refused.error().asked(), kMoreThanAnyMachine);
}

/// Opens the region's memory as a client over shm does: with a file description of its own.
UniqueFd taken_abroad(const RegionMemory& memory, int flags) {
  const std::string path = "/proc/self/fd/" + std::to_string(memory.shareable_fd());
  return UniqueFd{::open(path.c_str(), flags | O_CLOEXEC)};
}

TEST(Pool, RemovedRegionThatAClientMapsIsOrphaned) {
  auto pool = Pool::create(options(16 * kPage, 4 * kPage)).value();
  for (const bool writes : {true, false}) {
    auto memory = pool->allocate(3 * kPage, true, soon()).value();
    UniqueFd descriptor = taken_abroad(*memory, writes ? O_RDWR : O_RDONLY);
    ASSERT_TRUE(descriptor);
    void* const mapped = ::mmap(nullptr, 3 * kPage, writes ? PROT_READ | PROT_WRITE : PROT_READ,
                                MAP_SHARED, descriptor.get(), 0);
    ASSERT_NE(mapped, MAP_FAILED);
    EXPECT_EQ(pool->orphaned_bytes(), 0U) << "the region is there";
    descriptor = UniqueFd{};
    memory.reset();
    EXPECT_EQ(pool->orphaned_bytes(), 3 * kPage) << (writes ? "mapped to write" : "to read");
    EXPECT_EQ(pool->orphaned_bytes(), 3 * kPage) << "a look takes nothing away";
    ::munmap(mapped, 3 * kPage);
    EXPECT_EQ(pool->orphaned_bytes(), 0U);
  }
}

TEST(Pool, RemovedRegionWithAnOpenDescriptorIsOrphaned) {
  auto pool = Pool::create(options(16 * kPage, 4 * kPage)).value();
  auto memory = pool->allocate(kPage, true, soon()).value();
  UniqueFd descriptor = taken_abroad(*memory, O_RDWR);
  memory.reset();
  EXPECT_EQ(pool->orphaned_bytes(), kPage);
  EXPECT_TRUE(pool->take_unheld_orphans().empty());
  descriptor = UniqueFd{};
  EXPECT_EQ(pool->orphaned_bytes(), 0U);
  EXPECT_EQ(pool->take_unheld_orphans().size(), 1U) << "the caller that takes it frees its pages";
  EXPECT_TRUE(pool->take_unheld_orphans().empty());
}

TEST(Pool, RegionsThatNoClientHoldsLeaveNoOrphanAndNoDescriptor) {
  auto pool = Pool::create(options(16 * kPage, 4 * kPage)).value();
  const int before = UniqueFd{::open("/dev/null", O_RDONLY | O_CLOEXEC)}.get();
  for (int i = 0; i < 20; ++i) pool->allocate(kPage, i % 2 == 0, soon()).value().reset();
  EXPECT_EQ(pool->orphaned_bytes(), 0U);
  EXPECT_EQ(UniqueFd{::open("/dev/null", O_RDONLY | O_CLOEXEC)}.get(), before);
}

TEST(Pool, LastExtentEndsWithTheRegionNotWithThePage) {
  auto pool = Pool::create(options(4 * kPage, 4 * kPage)).value();
  auto memory = pool->allocate(kPage + 64, false, soon()).value();
  EXPECT_EQ(total(*memory), kPage + 64);
  EXPECT_EQ(pool->usage().used_bytes, 2 * kPage);
}

TEST(Pool, MemoryIsZeroWhenItIsHandedOutAgain) {
  auto pool = Pool::create(options(4 * kPage, 4 * kPage)).value();
  for (const bool shareable : {false, true, false}) {
    auto memory = pool->allocate(4 * kPage, shareable, soon()).value();
    for (const auto& stretch : memory->stretches()) {
      const std::span bytes{stretch.address, stretch.length_bytes};
      EXPECT_TRUE(is_zero(bytes));
      std::fill(bytes.begin(), bytes.end(), std::byte{0xa5});
    }
  }
}

TEST(Pool, ExhaustedSaysWhatWasAskedAndWhatIsFree) {
  auto pool = Pool::create(options(4 * kPage, 4 * kPage)).value();
  auto first = pool->allocate(3 * kPage, false, soon()).value();
  const auto second = pool->allocate(2 * kPage, false, soon());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kOutOfMemory);
  EXPECT_EQ(second.error().reason(), Reason::kPoolFull);
  EXPECT_EQ(second.error().asked(), 2 * kPage);
  EXPECT_EQ(second.error().allowed(), kPage);
}

TEST(Pool, LargerThanTheMachineIsRefusedBeforeAnythingIsTouched) {
  const auto pool = Pool::create(options(std::uint64_t{1} << 50U, std::uint64_t{1} << 30U));
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().code(), Code::kOutOfMemory);
  EXPECT_EQ(pool.error().asked(), std::uint64_t{1} << 50U);
  EXPECT_GT(pool.error().allowed(), 0U);
}

TEST(Pool, CoreDumpsLeaveItOut) {
  for (const bool core_dump : {false, true}) {
    config::Pool wanted = options(16 * kPage, 4 * kPage);
    wanted.core_dump = core_dump;
    auto pool = Pool::create(wanted).value();
    for (const transport::MemoryStretch& piece : pool->pieces())
      EXPECT_EQ(test::is_left_out_of_core_dumps(piece.address), !core_dump);
    for (const bool shareable : {false, true}) {
      const auto memory = pool->allocate(2 * kPage, shareable, soon()).value();
      for (const transport::MemoryStretch& stretch : memory->stretches())
        EXPECT_EQ(test::is_left_out_of_core_dumps(stretch.address), !core_dump) << shareable;
    }
  }
}

TEST(Pool, LargerThanTheLimitOfItsControlGroupIsRefused) {
  std::string folder = ::testing::TempDir() + "remora-cgroup.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const config::CgroupFiles groups{folder + "/self", folder};
  std::ofstream{groups.of_process} << "0::/\n";
  std::ofstream{folder + "/memory.max"} << 16 * kPage << '\n';
  std::ofstream{folder + "/memory.current"} << 8 * kPage << '\n';
  const auto create = [&](std::uint64_t pages) {
    return Pool::create(options(pages * kPage, pages * kPage), {}, kPage, {}, groups);
  };
  EXPECT_TRUE(create(8).ok());
  const auto refused = create(9);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Code::kOutOfMemory);
  EXPECT_EQ(refused.error().asked(), 9 * kPage);
  EXPECT_EQ(refused.error().allowed(), 8 * kPage);
  EXPECT_NE(refused.error().message().find("MemoryMax="), std::string::npos);
  // A region with memory of its own, outside the pool's.
  for (const bool keep : {false, true}) {
    const auto pool = create(8).value();
    if (keep) pool->keep_pages();
    std::ofstream{folder + "/memory.current"} << 14 * kPage << '\n';
    EXPECT_TRUE(pool->allocate(2 * kPage, true, soon()).ok());
    const auto region = pool->allocate(3 * kPage, true, soon());
    EXPECT_EQ(region.ok(), !keep);
    if (keep) {
      EXPECT_EQ(region.error().allowed(), 2 * kPage);
    }
    std::ofstream{folder + "/memory.current"} << 8 * kPage << '\n';
  }
  std::filesystem::remove_all(folder);
}

TEST(Pool, ShareableRegionIsOneSealedFileOfItsOwn) {
  auto pool = Pool::create(options(16 * kPage, 4 * kPage)).value();
  auto memory = pool->allocate(10 * kPage, true, soon()).value();
  EXPECT_EQ(memory->stretches().size(), 1U);
  const int fd = memory->shareable_fd();
  ASSERT_GE(fd, 0);
  EXPECT_NE(::ftruncate(fd, 0), 0) << "sealed against shrinking";
  EXPECT_NE(::ftruncate(fd, 64 * kPage), 0) << "and growing";
  EXPECT_NE(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0) << "no peer can seal it against us";
  struct stat status {};
  ASSERT_EQ(::fstat(fd, &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

/// For each page, whether it is there.
std::vector<unsigned char> residency(const transport::MemoryStretch& stretch) {
  std::vector<unsigned char> pages(stretch.length_bytes / kPage);
  EXPECT_EQ(::mincore(stretch.address, stretch.length_bytes, pages.data()), 0);
  return pages;
}

TEST(Pool, PiecesAreAllOfItAndBoundEveryExtent) {
  auto pool = Pool::create(options(10 * kPage, 4 * kPage)).value();
  const auto pieces = pool->pieces();
  ASSERT_EQ(pieces.size(), 3U);
  EXPECT_EQ(pieces[1].address, pieces[0].address + 4 * kPage);
  EXPECT_EQ(pieces[2].length_bytes, 2 * kPage) << "the last is what is left";
  auto memory = pool->allocate(9 * kPage, false, soon()).value();
  for (const auto& stretch : memory->stretches())
    EXPECT_TRUE(std::any_of(pieces.begin(), pieces.end(), [&](const auto& piece) {
      return stretch.address >= piece.address &&
             stretch.address + stretch.length_bytes <= piece.address + piece.length_bytes;
    }));
}

/// A device that has registered the pool would go on using pages that the pool has given up.
TEST(Pool, PagesThatAreKeptStayWhileARegionHasMemoryOfItsOwn) {
  for (const bool keep : {false, true}) {
    auto pool = Pool::create(options(4 * kPage, 4 * kPage)).value();
    if (keep) pool->keep_pages();
    const transport::MemoryStretch all = pool->pieces().front();
    const auto resident = [&] {
      const auto pages = residency(all);
      return std::count_if(pages.begin(), pages.end(),
                           [](unsigned char page) { return (page & 1U) != 0; });
    };
    EXPECT_EQ(resident(), 4) << "populated at start";
    auto shared = pool->allocate(3 * kPage, true, soon()).value();
    EXPECT_EQ(resident(), keep ? 4 : 1);
    shared.reset();
    // All memory can be allocated again, and is zero.
    auto next = pool->allocate(4 * kPage, false, soon()).value();
    for (const auto& stretch : next->stretches())
      EXPECT_TRUE(is_zero({stretch.address, stretch.length_bytes}));
  }
}

TEST(Pool, FillFreeAtRandomFillAgainLosesNothing) {
  auto pool = Pool::create(options(64 * kPage, 16 * kPage)).value();
  std::mt19937 random{7};
  std::vector<std::shared_ptr<RegionMemory>> held;
  for (int round = 0; round < 200; ++round) {
    if (!held.empty() && random() % 2 == 0) {
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(random() % held.size()));
      continue;
    }
    auto memory = pool->allocate((1 + random() % 9) * kPage, false, soon());
    if (memory) held.push_back(std::move(*memory));
  }
  held.clear();
  auto all = pool->allocate(64 * kPage, false, soon());
  ASSERT_TRUE(all) << all.error();
  EXPECT_EQ((*all)->stretches().size(), 4U) << "coalesced to whole pieces";
}

TEST(Pool, AllocationWaitsForPagesThatAreBeingZeroed) {
  auto pool = Pool::create(options(16 * kPage, 16 * kPage)).value();
  EXPECT_FALSE(pool->must_wait(16 * kPage));
  std::mutex mutex;
  std::condition_variable told;
  bool cleaned = false;
  pool->on_cleaned([&] {
    const std::lock_guard here{mutex};
    cleaned = true;
    told.notify_all();
  });
  // While the test holds this lock, the pool's thread can neither call back nor go on zeroing.
  std::unique_lock lock{mutex};
  auto first = pool->allocate(8 * kPage, false, soon()).value();
  auto second = pool->allocate(8 * kPage, false, soon()).value();
  first.reset();
  // However far the thread is with the first, it zeroes the second only after it has called back.
  while (pool->usage().free_bytes() != 8 * kPage) std::this_thread::yield();
  second.reset();
  EXPECT_TRUE(pool->must_wait(9 * kPage));
  EXPECT_FALSE(pool->must_wait(8 * kPage)) << "these are there";
  EXPECT_EQ(pool->allocate(9 * kPage, false, Clock::now()).error().code(), Code::kTimedOut);
  ASSERT_TRUE(told.wait_for(lock, std::chrono::seconds{20}, [&] { return cleaned; }));
  lock.unlock();
  ASSERT_TRUE(pool->allocate(16 * kPage, false, soon()));
  pool->on_cleaned(nullptr);
}

/// Fill, free at random, fill again: nothing is lost, torn over pieces, shared or seen twice.
TEST(Pool, SurvivesFragmentation) {
  constexpr std::uint64_t kPieces = 8;
  constexpr std::uint64_t kPiecePages = 16;
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    std::mt19937 random{seed};
    auto pool = Pool::create(options(kPieces * kPiecePages * kPage, kPiecePages * kPage)).value();
    const std::byte* const base =
        pool->allocate(kPage, false, soon()).value()->stretches()[0].address;
    std::vector<std::shared_ptr<RegionMemory>> held;
    std::uint64_t held_pages = 0;
    for (int step = 0; step < 120; ++step) {
      const std::uint64_t pages = 1 + random() % 24;
      const bool fits = held_pages + pages <= kPieces * kPiecePages;
      if (fits && random() % 3 != 0) {
        auto memory = pool->allocate(pages * kPage, false, soon());
        ASSERT_TRUE(memory.ok()) << seed << ": " << memory.error().message();
        ASSERT_EQ(total(**memory), pages * kPage);
        for (const auto& stretch : (*memory)->stretches()) {
          const auto at = static_cast<std::uint64_t>(stretch.address - base);
          ASSERT_EQ(at / (kPiecePages * kPage),
                    (at + stretch.length_bytes - 1) / (kPiecePages * kPage))
              << seed;
          const std::span bytes{stretch.address, stretch.length_bytes};
          ASSERT_TRUE(is_zero(bytes)) << seed << ": bytes of another region";
          std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(1 + step % 255));
        }
        held.push_back(std::move(*memory));
        held_pages += pages;
      } else if (!held.empty()) {
        const std::size_t which = random() % held.size();
        held_pages -= total(*held[which]) / kPage;
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
      }
      ASSERT_EQ(pool->usage().used_bytes, held_pages * kPage);
    }
    held.clear();
    // All memory can be allocated again, as one region.
    auto all = pool->allocate(kPieces * kPiecePages * kPage, false, soon());
    ASSERT_TRUE(all.ok()) << seed;
    EXPECT_EQ((*all)->stretches().size(), kPieces) << seed << ": neighbours were not joined";
  }
}

}  // namespace
}  // namespace remora::detail
