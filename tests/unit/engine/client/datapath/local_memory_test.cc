#include "client/datapath/local_memory.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <sys/file.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <remora/engine/buffer.h>

#include "base/unique_fd.h"
#include "support/mapping_flags.h"

namespace remora::detail {
namespace {

TEST(SlotStore, EverySlotOnceThenNone) {
  auto store = SlotStore::create(3, 100).value();
  EXPECT_EQ(store->slot_bytes(), 100U);
  EXPECT_EQ(store->slot(1).size(), 100U);
  EXPECT_EQ(store->slot(1).data() - store->slot(0).data(), 128) << "aligned to 64";
  std::set<std::uint32_t> taken;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(taken.insert(store->take()).second);
  EXPECT_EQ(store->take(), SlotStore::kNone);
  store->give_back(*taken.begin());
  EXPECT_EQ(store->take(), *taken.begin());
  for (const std::uint32_t index : taken) store->give_back(index);
}

TEST(SlotStoreDeathTest, SlotThatIsNotTakenIsNotGivenBack) {
  auto store = SlotStore::create(2, 64).value();
  const std::uint32_t first = store->take();
  const std::uint32_t second = store->take();
  store->give_back(first);
  if constexpr (kHotAssertions) {
    EXPECT_DEATH(store->give_back(first), "a bug in Remora: a slot that was taken is given back");
    EXPECT_DEATH(store->chain(second, first), "a bug in Remora: only slots that were taken are");
  }
  store->give_back(second);
}

TEST(LocalMemoryDeathTest, UseThatHasNotBegunDoesNotEnd) {
  LocalMemory memory{std::span<std::byte>{}, LocalMemory::Handles::kCopied};
  memory.begin_use();
  memory.end_use();
  if constexpr (kHotAssertions) {
    EXPECT_DEATH(memory.end_use(), "a bug in Remora: a use of memory ends once");
  }
}

/// Sets vm.nr_hugepages for a while, where that is allowed. One test at a time, of all processes.
class HugePageReserve {
 public:
  explicit HugePageReserve(unsigned pages)
      : lock_{::open((testing::TempDir() + "remora-nr_hugepages.lock").c_str(),
                     O_CREAT | O_RDWR | O_CLOEXEC, 0600)} {
    while (::flock(lock_.get(), LOCK_EX) != 0 && errno == EINTR) continue;
    std::ifstream{kFile} >> before_;
    std::ofstream{kFile} << pages << std::flush;
    std::ifstream{kFile} >> now_;
    unsigned free = 0;
    std::ifstream{"/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"} >> free;
    free_ = free;
  }
  ~HugePageReserve() { std::ofstream{kFile} << before_ << std::flush; }
  HugePageReserve(const HugePageReserve&) = delete;
  HugePageReserve& operator=(const HugePageReserve&) = delete;
  [[nodiscard]] bool set_to(unsigned pages) const { return now_ == pages; }
  [[nodiscard]] unsigned free_pages() const { return free_; }

 private:
  static constexpr const char* kFile = "/proc/sys/vm/nr_hugepages";
  UniqueFd lock_;
  unsigned before_ = 0;
  unsigned now_ = 0;
  unsigned free_ = 0;
};

constexpr std::size_t kHuge = Slab::kHugePageBytes;

bool aligned(const Slab& slab) {
  return reinterpret_cast<std::uintptr_t>(slab.bytes().data()) % kHuge == 0;
}

TEST(Slab, BelowAHugePageOrdinary) {
  const Slab slab = Slab::map(kHuge - 4096).value();
  EXPECT_EQ(slab.pages(), Slab::Pages::kOrdinary);
  EXPECT_EQ(slab.bytes().size(), kHuge - 4096);
}

TEST(Slab, CoreDumpsLeaveItOut) {
  for (const HugePages pages : {HugePages::kAuto, HugePages::kNever})
    for (const std::size_t size : {std::size_t{4096}, 2 * kHuge}) {
      const Slab kept = Slab::map(size, {.huge_pages = pages}).value();
      EXPECT_TRUE(test::is_left_out_of_core_dumps(kept.bytes().data()));
      EXPECT_TRUE(test::is_left_out_of_core_dumps(&kept.bytes().back()));
      const Slab dumped = Slab::map(size, {.huge_pages = pages, .core_dump = true}).value();
      EXPECT_FALSE(test::is_left_out_of_core_dumps(dumped.bytes().data()));
    }
}

TEST(Slab, NeverMeansOrdinary) {
  const Slab slab = Slab::map(2 * kHuge, {.huge_pages = HugePages::kNever}).value();
  EXPECT_EQ(slab.pages(), Slab::Pages::kOrdinary);
  EXPECT_EQ(slab.bytes().size(), 2 * kHuge);
}

TEST(Slab, FreeHugePagesAreTakenWholeAndGivenBack) {
  const HugePageReserve reserve{4};
  if (!reserve.set_to(4) || reserve.free_pages() < 2)
    GTEST_SKIP() << "no free huge pages, and vm.nr_hugepages cannot be set";
  for (int round = 0; round < 3; ++round) {
    const Slab slab = Slab::map(kHuge + 100).value();
    EXPECT_EQ(slab.pages(), Slab::Pages::kHuge);
    EXPECT_EQ(slab.bytes().size(), 2 * kHuge);
    EXPECT_TRUE(aligned(slab));
    slab.bytes().front() = slab.bytes().back() = std::byte{1};
  }
}

TEST(Slab, TooFewFreeHugePagesIsNoError) {
  const HugePageReserve reserve{1};
  if (!reserve.set_to(1)) GTEST_SKIP() << "vm.nr_hugepages cannot be set";
  const Slab slab = Slab::map(3 * kHuge + 100).value();
  EXPECT_NE(slab.pages(), Slab::Pages::kHuge);
  EXPECT_TRUE(aligned(slab)) << "for transparent ones";
  EXPECT_EQ(slab.bytes().size(), 3 * kHuge + 100);
  slab.bytes().front() = slab.bytes().back() = std::byte{1};
}

TEST(Slab, LimitOnAddressSpaceIsOutOfMemory) {
  const auto slab = Slab::map(std::size_t{1} << 60U);
  ASSERT_FALSE(slab);
  EXPECT_EQ(slab.error().code(), Code::kOutOfMemory);
}

TEST(Slab, ForkedChildWithoutHugePagesLeavesTheParentItsOwn) {
  const HugePageReserve reserve{1};
  if (!reserve.set_to(1) || reserve.free_pages() < 1)
    GTEST_SKIP() << "no free huge page, and vm.nr_hugepages cannot be set";
  const Slab slab = Slab::map(kHuge).value();
  ASSERT_EQ(slab.pages(), Slab::Pages::kHuge);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  // Copy on write would need a second page, and there is none.
  for (std::byte& byte : slab.bytes().first(4096)) byte = std::byte{7};
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, WNOHANG), 0) << "it lives";
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
}

TEST(SlotStore, ZeroOrHugeIsInvalid) {
  EXPECT_EQ(SlotStore::create(0, 64).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(SlotStore::create(1, 0).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(SlotStore::create(1, std::size_t{1} << 40U).error().code(), Code::kInvalidArgument);
}

TEST(SlotStore, NoSlotIsOutTwiceUnderContention) {
  auto store = SlotStore::create(4, 64).value();
  std::array<std::atomic<int>, 4> holders{};
  std::atomic<bool> shared{false};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        const std::uint32_t index = store->take();
        if (index == SlotStore::kNone) continue;
        if (holders[index].fetch_add(1) != 0) shared = true;
        holders[index].fetch_sub(1);
        store->give_back(index);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(shared);
}

TEST(Slot, ReturnsToItsPoolWhenDestroyedAndOutlivesTheHandle) {
  auto pool = std::make_unique<SlotPool>(SlotStore::create(1, 64).value());
  Slot slot = pool->take();
  EXPECT_TRUE(slot);
  EXPECT_FALSE(pool->take());
  slot = Slot{};
  slot = pool->take();
  EXPECT_TRUE(slot);
  pool.reset();
  slot.bytes()[0] = std::byte{1};  // the slab is still there
}

TEST(SlotReturn, GivesBackAllOfSeveralPoolsAndPassesOverEmptyOnes) {
  SlotPool one{SlotStore::create(3, 64).value()};
  SlotPool other{SlotStore::create(2, 64).value()};
  for (int round = 0; round < 3; ++round) {
    std::array<Slot, 6> slots{one.take(), one.take(),   other.take(),
                              Slot{},     other.take(), one.take()};
    EXPECT_FALSE(one.take());
    EXPECT_FALSE(other.take());
    SlotReturn back;
    for (Slot& slot : slots) back.add(slot);
    for (const Slot& slot : slots) EXPECT_FALSE(slot);
  }
  std::array<Slot, 5> again{one.take(), one.take(), one.take(), other.take(), other.take()};
  std::set<const std::byte*> places;
  for (const Slot& slot : again) {
    EXPECT_TRUE(slot);
    places.insert(slot.bytes().data());
  }
  EXPECT_EQ(places.size(), again.size()) << "none is out twice";
}

TEST(SlotReturn, LastSlotsOfAPoolThatIsGoneTakeItsMemoryWithThem) {
  auto pool = std::make_unique<SlotPool>(SlotStore::create(2, 64).value());
  std::array<Slot, 2> slots{pool->take(), pool->take()};
  pool.reset();
  SlotReturn back;
  for (Slot& slot : slots) back.add(slot);  // the sanitizers would tell of a leak
}

TEST(RegisteredMemory, PartOutsideIsNotValid) {
  std::array<std::byte, 16> bytes{};
  const RegisteredMemory memory{std::make_shared<LocalMemory>(std::span{bytes})};
  EXPECT_EQ((Target{memory, 8, 8}.bytes().data()), memory.bytes().data() + 8);
  EXPECT_EQ((Target{memory, 9, 8}.bytes().data()), nullptr);
  EXPECT_EQ((Source{memory, SIZE_MAX, 2}.bytes().data()), nullptr);
  EXPECT_EQ((Source{RegisteredMemory{}, 0, 1}.bytes().data()), nullptr);
}

}  // namespace
}  // namespace remora::detail
