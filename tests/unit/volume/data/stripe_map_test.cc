#include "stripe_map.h"

#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <set>
#include <utility>

#include <remora/engine/types.h>

#include "support/assert_ok.h"
#include "support/pattern.h"

namespace remora::volume::detail {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using remora::test::Random;

VolumeRecord record(std::uint32_t width, std::uint64_t units_of_group, std::uint64_t rows) {
  VolumeRecord made;
  made.name = "v";
  made.block_bytes = made.stripe_bytes = 4_KiB;
  made.group_bytes = units_of_group * made.stripe_bytes;
  made.width = width;
  made.size_bytes = rows * made.row_bytes();
  return made;
}

/// The table of the header, by 64-bit arithmetic.
Place expected_place(const VolumeRecord& record, std::uint64_t offset) {
  const std::uint64_t unit = offset / record.stripe_bytes;
  const std::uint64_t in_row = unit % (record.row_bytes() / record.stripe_bytes);
  const std::uint64_t row = offset / record.row_bytes();
  return {
      .group = static_cast<std::uint32_t>(row * record.width + in_row % record.width),
      .offset_bytes = in_row / record.width * record.stripe_bytes + offset % record.stripe_bytes,
      .left_bytes = record.stripe_bytes - offset % record.stripe_bytes};
}

void expect_place(const StripeMap& map, const VolumeRecord& record, std::uint64_t offset) {
  const Place place = map.place_of(offset);
  const Place expected = expected_place(record, offset);
  ASSERT_EQ(place.group, expected.group) << offset;
  ASSERT_EQ(place.offset_bytes, expected.offset_bytes) << offset;
  ASSERT_EQ(place.left_bytes, expected.left_bytes) << offset;
}

TEST(StripeMap, UnitsGoRoundOverTheGroupsOfARow) {
  const StripeMap map = StripeMap::of(record(3, 2, 2)).value();
  EXPECT_EQ(map.group_count(), 6U);
  const std::vector<std::pair<std::uint32_t, std::uint64_t>> units{
      {0, 0}, {1, 0}, {2, 0}, {0, 4_KiB}, {1, 4_KiB}, {2, 4_KiB},
      {3, 0}, {4, 0}, {5, 0}, {3, 4_KiB}, {4, 4_KiB}, {5, 4_KiB}};
  for (std::size_t i = 0; i < units.size(); ++i) {
    const Place first = map.place_of(i * 4_KiB);
    EXPECT_EQ(std::pair(first.group, first.offset_bytes), units[i]);
    EXPECT_EQ(first.left_bytes, 4_KiB);
    const Place last = map.place_of(i * 4_KiB + 4095);
    EXPECT_EQ(std::pair(last.group, last.offset_bytes - 4095), units[i]);
    EXPECT_EQ(last.left_bytes, 1U);
  }
}

TEST(StripeMap, NoTwoUnitsShareAPlaceAndAllPlacesAreUsed) {
  for (const std::uint32_t width : {1U, 2U, 3U, 5U, 64U})
    for (const std::uint64_t units : {1U, 2U, 7U}) {
      const VolumeRecord volume = record(width, units, 3);
      const StripeMap map = StripeMap::of(volume).value();
      std::set<std::pair<std::uint32_t, std::uint64_t>> places;
      for (std::uint64_t at = 0; at < volume.size_bytes; at += volume.stripe_bytes) {
        const Place place = map.place_of(at);
        ASSERT_LT(place.group, volume.group_count());
        ASSERT_LT(place.offset_bytes, volume.group_bytes);
        ASSERT_TRUE(places.emplace(place.group, place.offset_bytes).second) << at;
      }
      EXPECT_EQ(places.size(), volume.group_count() * units);
    }
}

TEST(StripeMap, LargestVolumeHasItsLastByteInItsLastGroup) {
  VolumeRecord volume = record(64, kGroupBytesMax / 4_KiB, kGroupsMax / 64);
  const StripeMap map = StripeMap::of(volume).value();
  EXPECT_EQ(map.group_count(), kGroupsMax);
  expect_place(map, volume, volume.size_bytes - 1);
  EXPECT_EQ(map.place_of(volume.size_bytes - 1).group, kGroupsMax - 1);
  EXPECT_EQ(map.place_of(volume.size_bytes - 1).offset_bytes, kGroupBytesMax - 1);
  Random random{1};
  for (int i = 0; i < 10'000; ++i) expect_place(map, volume, random.below(volume.size_bytes));
  volume.size_bytes += volume.row_bytes();
  EXPECT_CODE(StripeMap::of(volume), kProtocol);
}

TEST(StripeMap, PlacesAgreeWithTheDefinition) {
  Random random{2};
  for (int i = 0; i < 200; ++i) {
    const VolumeRecord volume = record(static_cast<std::uint32_t>(1 + random.below(kWidthMax)),
                                       1 + random.below(300), 1 + random.below(9));
    const StripeMap map = StripeMap::of(volume).value();
    for (int j = 0; j < 100; ++j) expect_place(map, volume, random.below(volume.size_bytes));
  }
}

TEST(StripeMap, HoldsWhatIsWithinTheVolume) {
  VolumeRecord volume = record(2, 2, 1);
  volume.size_bytes -= 4_KiB;  // the last unit is behind the end
  const std::uint64_t size = volume.size_bytes;
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  const StripeMap map = StripeMap::of(volume).value();
  EXPECT_EQ(map.group_count(), 2U);
  EXPECT_TRUE(map.holds(0, 1));
  EXPECT_TRUE(map.holds(0, size));
  EXPECT_TRUE(map.holds(size - 1, 1));
  EXPECT_FALSE(map.holds(0, 0));
  EXPECT_FALSE(map.holds(size, 0));
  EXPECT_FALSE(map.holds(size, 1));
  EXPECT_FALSE(map.holds(size - 1, 2));
  EXPECT_FALSE(map.holds(1, size));
  EXPECT_FALSE(map.holds(0, size + 1));
  EXPECT_FALSE(map.holds(kMax, 2));
  EXPECT_FALSE(map.holds(2, kMax));
  EXPECT_FALSE(map.holds(kMax, kMax));
}

TEST(StripeMap, InOneUnitAgreesWithTheOtherFunctions) {
  VolumeRecord volume = record(3, 2, 1);
  volume.size_bytes -= 1_KiB;  // within the last unit
  const StripeMap map = StripeMap::of(volume).value();
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t size = volume.size_bytes;
  const auto expected = [&](std::uint64_t offset, std::uint64_t length) {
    return map.holds(offset, length) && length <= map.place_of(offset).left_bytes;
  };
  for (const std::uint64_t offset :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4_KiB - 1}, std::uint64_t{4_KiB},
        size - 3_KiB, size - 1, size, size + 1_KiB - 1, size + 1_KiB, kMax - 1, kMax})
    for (const std::uint64_t length :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3_KiB},
          std::uint64_t{3_KiB + 1}, std::uint64_t{4_KiB - 1}, std::uint64_t{4_KiB},
          std::uint64_t{4_KiB + 1}, size, kMax - 4_KiB + 1, kMax - 1, kMax})
      EXPECT_EQ(map.in_one_unit(offset, length), expected(offset, length))
          << offset << ", " << length;
  EXPECT_TRUE(map.in_one_unit(size - 3_KiB, 3_KiB));
  EXPECT_FALSE(map.in_one_unit(size - 3_KiB, 3_KiB + 1)) << "in its unit, not in the volume";
  EXPECT_FALSE(StripeMap::none().in_one_unit(0, 1));
  EXPECT_FALSE(StripeMap::none().in_one_unit(0, 0));
}

TEST(StripeMap, ImpossibleRecordsAreRefused) {
  const auto refused = [](const std::function<void(VolumeRecord&)>& spoil) {
    VolumeRecord volume = record(2, 2, 1);
    spoil(volume);
    const auto made = StripeMap::of(volume);
    return !made && made.error().code() == Code::kProtocol &&
           made.error().subject().starts_with("v, ");
  };
  EXPECT_TRUE(refused([](VolumeRecord& volume) { volume.stripe_bytes = 0; }));
  EXPECT_TRUE(refused([](VolumeRecord& volume) { volume.stripe_bytes = 2048; }));
  EXPECT_TRUE(refused([](VolumeRecord& volume) { volume.stripe_bytes = 12_KiB; }));
  EXPECT_TRUE(refused([](VolumeRecord& volume) { volume.width = 0; }));
  EXPECT_TRUE(refused([](VolumeRecord& volume) { volume.width = kWidthMax + 1; }));
  EXPECT_TRUE(refused([](VolumeRecord& volume) { volume.group_bytes = 0; }));
  EXPECT_TRUE(refused([](VolumeRecord& volume) { volume.group_bytes = 10_KiB; }));
  EXPECT_TRUE(refused([](VolumeRecord& volume) { volume.group_bytes = 2 * kGroupBytesMax; }));
  EXPECT_TRUE(refused([](VolumeRecord& volume) { volume.size_bytes = 0; }));
}

}  // namespace
}  // namespace remora::volume::detail
