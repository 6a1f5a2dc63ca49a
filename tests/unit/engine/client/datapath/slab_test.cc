#include "client/datapath/slab.h"

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "support/mapping_flags.h"

namespace remora::detail {
namespace {

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

}  // namespace
}  // namespace remora::detail
