#include "transport/shm/mapping.h"

#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <optional>
#include <sys/mman.h>
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
