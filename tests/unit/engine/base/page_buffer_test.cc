#include "base/page_buffer.h"

#include <algorithm>
#include <cerrno>
#include <gtest/gtest.h>
#include <span>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace remora::detail {
namespace {

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

/// Whether `buffer` is a mapping of its own: where AddressSanitizer watches, it is an array.
bool starts_a_page(const PageBuffer& buffer) {
  return reinterpret_cast<std::uintptr_t>(buffer.data()) % page_bytes() == 0;
}

TEST(PageBuffer, BytesAreZeroAndMayBeWritten) {
  const PageBuffer buffer{100'000};
  ASSERT_EQ(buffer.size(), 100'000U);
  const std::span bytes{buffer.data(), buffer.size()};
  EXPECT_TRUE(
      std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
  std::fill(bytes.begin(), bytes.end(), std::byte{7});
  EXPECT_EQ(bytes.back(), std::byte{7});
}

TEST(PageBuffer, OnlyPagesThatWereUsedAreResident) {
  const PageBuffer buffer{16 * page_bytes()};
  if (!starts_a_page(buffer)) GTEST_SKIP() << "an array";
  buffer.data()[0] = std::byte{1};
  std::vector<unsigned char> resident(16);
  ASSERT_EQ(::mincore(buffer.data(), buffer.size(), resident.data()), 0);
  EXPECT_EQ(resident.front() & 1U, 1U);
  EXPECT_EQ(resident.back() & 1U, 0U);
}

TEST(PageBuffer, PagesGoWithTheBuffer) {
  void* where = nullptr;
  {
    const PageBuffer buffer{16 * page_bytes()};
    if (!starts_a_page(buffer)) GTEST_SKIP() << "an array";
    where = buffer.data();
  }
  // Nothing else maps memory in this test meanwhile.
  std::vector<unsigned char> resident(16);
  EXPECT_EQ(::mincore(where, 16 * page_bytes(), resident.data()), -1);
  EXPECT_EQ(errno, ENOMEM);
}

TEST(PageBuffer, MovedFromIsEmpty) {
  PageBuffer first{4096};
  std::byte* const data = first.data();
  PageBuffer second{std::move(first)};
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(first.size(), 0U);
  first = std::move(second);
  EXPECT_EQ(first.data(), data);
  EXPECT_EQ(first.size(), 4096U);
}

TEST(PageBuffer, NoBytesAreNoMapping) {
  const PageBuffer none{0};
  EXPECT_EQ(none.data(), nullptr);
}

}  // namespace
}  // namespace remora::detail
