#include "client/region/extent_index.h"

#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <vector>

#include "client/datapath/operation_record.h"

namespace remora::detail {
namespace {

using transport::WireExtent;

constexpr std::uint64_t kGib = std::uint64_t{1} << 30U;

/// Extents of these lengths, each at an address and with a key of its own.
std::vector<WireExtent> extents_of(const std::vector<std::uint64_t>& lengths) {
  std::vector<WireExtent> extents;
  std::uint64_t start = 0;
  for (const std::uint64_t length : lengths) {
    const std::uint64_t number = extents.size() + 1;
    extents.push_back({.start_bytes = start,
                       .length_bytes = length,
                       .remote_address = number << 40U,
                       .remote_key = static_cast<std::uint32_t>(number)});
    start += length;
  }
  return extents;
}

/// Whether the index finds the extent of these bytes. What it finds is what the search finds.
bool finds(const ExtentIndex& index, const std::vector<WireExtent>& extents, std::uint64_t offset,
           std::uint64_t length) {
  const auto* const found = index.find(offset, length);
  if (found == nullptr) return false;
  const WireExtent& extent = extent_of(extents, offset);
  EXPECT_EQ(found->remote_key, extent.remote_key) << offset;
  EXPECT_EQ(found->base_address + offset, extent.remote_address + (offset - extent.start_bytes))
      << offset;
  EXPECT_LE(offset + length, extent.start_bytes + extent.length_bytes) << offset;
  return true;
}

TEST(ExtentIndex, OneExtentNeedsNone) {
  EXPECT_TRUE(ExtentIndex{extents_of({4096})}.empty());
  EXPECT_FALSE(ExtentIndex{extents_of({4096, 4096})}.empty());
}

TEST(ExtentIndex, AllOfEqualPiecesIsFound) {
  std::vector<std::uint64_t> lengths(64, kGib);
  lengths.back() = 4096;  // the rest of a region
  const auto extents = extents_of(lengths);
  const ExtentIndex index{extents};
  for (const WireExtent& extent : extents) {
    const std::uint64_t last = extent.start_bytes + extent.length_bytes - 1;
    EXPECT_TRUE(finds(index, extents, extent.start_bytes, 1));
    EXPECT_TRUE(finds(index, extents, extent.start_bytes, extent.length_bytes));
    EXPECT_TRUE(finds(index, extents, last, 1));
    if (&extent != &extents.back()) {
      EXPECT_FALSE(finds(index, extents, last, 2));
    }
  }
}

TEST(ExtentIndex, PiecesOfOtherLengthsAreFoundByteByByte) {
  const auto extents = extents_of({192, 64, 320, 64, 128, 8});
  const ExtentIndex index{extents};
  for (std::uint64_t at = 0; at < 776; ++at) EXPECT_TRUE(finds(index, extents, at, 1)) << at;
}

TEST(ExtentIndex, FragmentsLeaveALittleToTheSearch) {
  std::vector<std::uint64_t> lengths;
  for (std::uint64_t i = 0; i < 20; ++i)
    lengths.push_back(kGib / 4 + (std::uint64_t{4096} << (i % 3)));
  const auto extents = extents_of(lengths);
  const std::uint64_t size = extents.back().start_bytes + extents.back().length_bytes;
  const ExtentIndex index{extents};
  std::size_t found = 0;
  constexpr std::uint64_t kTries = 10'000;
  for (std::uint64_t i = 0; i < kTries; ++i)
    if (finds(index, extents, size / kTries * i, 1)) ++found;
  EXPECT_GT(found, kTries * 96 / 100);  // all but the ends of 19 of 641 parts
  for (const WireExtent& extent : extents) {
    (void)finds(index, extents, extent.start_bytes, extent.length_bytes);
    (void)finds(index, extents, extent.start_bytes + extent.length_bytes - 1, 1);
  }
}

TEST(ExtentIndex, LargestRegionsAreFound) {
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 63U;
  const auto extents = extents_of({kHalf, kHalf - 1});
  const ExtentIndex index{extents};
  EXPECT_TRUE(finds(index, extents, 0, kHalf));
  EXPECT_TRUE(finds(index, extents, kHalf, kHalf - 1));
  EXPECT_FALSE(finds(index, extents, kHalf - 1, 2));
}

}  // namespace
}  // namespace remora::detail
