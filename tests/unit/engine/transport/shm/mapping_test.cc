#include "transport/shm/mapping.h"

#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/memfd.h>
#include <memory>
#include <optional>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "base/unique_fd.h"

namespace remora::transport {
namespace {

constexpr std::size_t kBytes = std::size_t{12} << 20U;

/// A memfd with all of its pages, as a server has it.
UniqueFd region_of(std::size_t size_bytes, int seals = F_SEAL_SHRINK) {
  UniqueFd fd{::memfd_create("mapping_test", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  const std::vector<std::byte> page(4096, std::byte{1});
  for (std::size_t at = 0; at < size_bytes; at += page.size())
    EXPECT_EQ(::pwrite(fd.get(), page.data(), page.size(), static_cast<off_t>(at)),
              static_cast<ssize_t>(page.size()));
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

/// How many bytes of the range are in the page table of this process; none: it is not told.
/// Source: Documentation/admin-guide/mm/pagemap.rst, bit 63.
std::optional<std::size_t> entered_bytes(const std::byte* begin, std::size_t size_bytes) {
  const UniqueFd pagemap{::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)};
  if (!pagemap) return {};
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<std::uint64_t> entries(size_bytes / page);
  const std::size_t wanted = entries.size() * sizeof(std::uint64_t);
  const auto at = reinterpret_cast<std::uintptr_t>(begin) / page * sizeof(std::uint64_t);
  if (::pread(pagemap.get(), entries.data(), wanted, static_cast<off_t>(at)) !=
      static_cast<ssize_t>(wanted))
    return {};
  std::size_t present = 0;
  for (const std::uint64_t entry : entries) present += entry >> 63U;
  return present * page;
}

class MappingTest : public testing::Test {
 protected:
  void SetUp() override {
    fd_ = region_of(kBytes);
    mapping_ = Mapping::map(fd_.get(), kBytes, PROT_READ | PROT_WRITE).value();
    if (!entered_bytes(mapping_->address(), kBytes)) GTEST_SKIP() << "no /proc/self/pagemap";
    // Whether the kernel populates at all (5.14).
    if (::madvise(mapping_->address(), 4096, MADV_POPULATE_READ) != 0)
      GTEST_SKIP() << "no MADV_POPULATE_READ";
    mapping_ = Mapping::map(fd_.get(), kBytes, PROT_READ | PROT_WRITE).value();
  }
  [[nodiscard]] std::size_t entered(std::size_t size_bytes = kBytes) const {
    return entered_bytes(mapping_->address(), size_bytes).value();
  }

  UniqueFd fd_;
  std::shared_ptr<Mapping> mapping_;
};

TEST_F(MappingTest, NoneEntersNothing) {
  mapping_->populate(Populate::kNone, true);
  EXPECT_EQ(entered(), 0U);
}

TEST_F(MappingTest, NowEntersAllPages) {
  for (const bool writes : {false, true}) {
    mapping_ = Mapping::map(fd_.get(), kBytes, PROT_READ | PROT_WRITE).value();
    mapping_->populate(Populate::kNow, writes);
    EXPECT_EQ(entered(), kBytes);
  }
}

TEST_F(MappingTest, NowEntersAMappingThatMayOnlyBeRead) {
  mapping_ = Mapping::map(fd_.get(), kBytes, PROT_READ).value();
  mapping_->populate(Populate::kNow, false);
  EXPECT_EQ(entered(), kBytes);
}

TEST_F(MappingTest, LazyEntersABeginningAndThenTheRest) {
  constexpr std::size_t kAtOnce = std::size_t{1} << 20U;
  mapping_->populate(Populate::kLazy, true, kAtOnce);
  EXPECT_EQ(entered(kAtOnce), kAtOnce);
  mapping_->await_populated();
  EXPECT_EQ(entered(), kBytes);
}

TEST_F(MappingTest, LazyEntersAllOfASmallRegionAtOnce) {
  mapping_->populate(Populate::kLazy, true);
  EXPECT_EQ(entered(), kBytes);
}

TEST_F(MappingTest, ContentsStay) {
  mapping_->populate(Populate::kNow, true);
  for (std::size_t at = 0; at < kBytes; at += 4096)
    ASSERT_EQ(mapping_->address()[at], std::byte{1}) << at;
}

/// A region of a pool with `populate: false`: only the first half has pages.
class SparseMappingTest : public MappingTest {
 protected:
  void SetUp() override {
    MappingTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(
        ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kBytes / 2, kBytes / 2),
        0);
    ASSERT_EQ(bytes_there(), kBytes / 2);
  }
  /// What the memory takes.
  [[nodiscard]] std::size_t bytes_there() const {
    struct stat status {};
    EXPECT_EQ(::fstat(fd_.get(), &status), 0);
    return static_cast<std::size_t>(status.st_blocks) * 512;
  }
};

TEST_F(SparseMappingTest, LazyTakesNoMemory) {
  for (const bool writes : {false, true}) {
    for (const std::size_t at_once : {Mapping::kStepBytes, kBytes}) {
      mapping_ = Mapping::map(fd_.get(), kBytes, PROT_READ | PROT_WRITE).value();
      mapping_->populate(Populate::kLazy, writes, at_once);
      mapping_->await_populated();
      EXPECT_EQ(entered(Mapping::kStepBytes), Mapping::kStepBytes);
      EXPECT_LT(entered(), kBytes / 2) << "the step that lacks pages is left out";
      EXPECT_EQ(bytes_there(), kBytes / 2);
    }
  }
}

TEST_F(SparseMappingTest, NowMakesWhatIsMissing) {
  mapping_->populate(Populate::kNow, true);
  EXPECT_EQ(entered(), kBytes);
  EXPECT_EQ(bytes_there(), kBytes);
}

TEST_F(MappingTest, LimitOfThreadsCountsThoseThatRun) {
  std::vector<std::shared_ptr<Mapping>> mappings;
  for (unsigned i = 0; i < 4 * Mapping::kMaxThreads; ++i) {
    mappings.push_back(Mapping::map(fd_.get(), kBytes, PROT_READ | PROT_WRITE).value());
    mappings.back()->populate(Populate::kLazy, true, 4096);
  }
  mappings.clear();
  mapping_->populate(Populate::kLazy, true, 4096);
  mapping_->await_populated();
  EXPECT_EQ(entered(), kBytes) << "those that have gone do not count";
}

/// Without reserved pages of 2 MiB there is no such memory to map.
TEST(Mapping, ExplicitHugePagesAreMappedWhole) {
  constexpr std::size_t kHuge = std::size_t{2} << 20U;
  const UniqueFd fd{::memfd_create(
      "mapping_test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | unsigned{MFD_HUGE_2MB})};
  if (!fd || ::ftruncate(fd.get(), 2 * kHuge) != 0) GTEST_SKIP() << "no huge pages";
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  auto mapping = Mapping::map(fd.get(), kHuge + 4096, PROT_READ | PROT_WRITE);
  if (!mapping) GTEST_SKIP() << "no huge pages: " << mapping.error().message();
  EXPECT_EQ((*mapping)->size_bytes(), 2 * kHuge);
  std::byte* const address = (*mapping)->address();
  EXPECT_EQ(::madvise(address, (*mapping)->size_bytes(), MADV_DONTFORK), 0);
  (*mapping)->populate(Populate::kLazy, true);
  address[kHuge] = std::byte{1};
  *mapping = nullptr;
  unsigned char present = 0;
  EXPECT_EQ(::mincore(address, 4096, &present), -1) << "unmapped";
}

TEST_F(MappingTest, MayGoWhileAThreadPopulates) {
  for (int round = 0; round < 20; ++round) {
    mapping_ = Mapping::map(fd_.get(), kBytes, PROT_READ | PROT_WRITE).value();
    mapping_->populate(Populate::kLazy, true, 4096);
    mapping_.reset();
  }
}

TEST(Mapping, MemoryThatMayShrinkIsRefused) {
  const UniqueFd fd = region_of(4096, F_SEAL_GROW);
  EXPECT_EQ(Mapping::map(fd.get(), 4096, PROT_READ).error().code(), Code::kProtocol);
  const UniqueFd shorter = region_of(4096);
  EXPECT_EQ(Mapping::map(shorter.get(), 8192, PROT_READ).error().code(), Code::kProtocol);
}

}  // namespace
}  // namespace remora::transport
