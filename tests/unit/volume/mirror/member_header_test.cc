#include "member_header.h"

#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <string_view>

#include <remora/volume/remedy.h>

#include "mirror_layout.h"
#include "support/assert_ok.h"

namespace remora::volume::test {
namespace {

using detail::MemberHeader;
using detail::MemberRole;

MemberHeader example() {
  MemberHeader header;
  header.generation = 0x1122334455667788;
  header.volume_id = 7;
  header.group = 3;
  header.writer_epoch = 4;
  header.epoch = 11;
  header.role = MemberRole::kPrimary;
  header.promoting = true;
  return header;
}

GroupRecord record_of(const MemberHeader& header) {
  GroupRecord record;
  record.generation = header.generation;
  record.adopted = header.writer_epoch;
  record.epoch = header.epoch;
  return record;
}

TEST(MemberHeader, ComesBack) {
  EXPECT_EQ(MemberHeader::decode(example().encode()).value(), example());
}

TEST(MemberHeader, HasTheBytesOfItsTable) {
  const MemberHeader::Bytes bytes = example().encode();
  EXPECT_EQ(bytes[0], std::byte{'R'});
  EXPECT_EQ(bytes[7], std::byte{'1'});
  EXPECT_EQ(bytes[8], std::byte{1});
  EXPECT_EQ(bytes[16], std::byte{0x88});
  EXPECT_EQ(bytes[40], std::byte{4});
  EXPECT_EQ(bytes[56], std::byte{3});
  EXPECT_EQ(bytes[57], std::byte{1});
}

TEST(MemberHeader, ARegionThatNoWriterHasUsedIsOlderThanEverything) {
  const MemberHeader none = MemberHeader::decode(MemberHeader::Bytes{}).value();
  EXPECT_EQ(none, MemberHeader{});
  EXPECT_FALSE(none.is_ahead_of(GroupRecord{}));
}

TEST(MemberHeader, OneThatWasWrittenInPartIsRefused) {
  for (const std::size_t at : {0U, 20U, 41U, 57U, 70U}) {
    MemberHeader::Bytes bytes = example().encode();
    bytes[at] ^= std::byte{0x40};
    EXPECT_CODE(MemberHeader::decode(bytes), kProtocol);
    const Error refused = MemberHeader::decode(bytes).error();
    EXPECT_NE(remedy(refused).find("'remora rm'"), std::string_view::npos);
  }
}

/// As another version of Remora would write it: its checksum is right.
MemberHeader::Bytes with_version(std::uint64_t version) {
  constexpr std::size_t kChecksumAt = MemberHeader::kBytes - 8;
  MemberHeader::Bytes bytes = example().encode();
  bytes[8] = static_cast<std::byte>(version);
  std::uint64_t sum = 0xcbf29ce484222325;
  for (std::size_t i = 0; i < kChecksumAt; ++i)
    sum = (sum ^ std::to_integer<std::uint64_t>(bytes[i])) * 0x100000001b3;
  for (std::size_t i = 0; i < 8; ++i)
    bytes[kChecksumAt + i] = static_cast<std::byte>(sum >> (8 * i));
  return bytes;
}

TEST(MemberHeader, OneOfAnotherVersionIsUnsupported) {
  EXPECT_EQ(MemberHeader::decode(with_version(1)).value(), example());
  for (const std::uint64_t version : {std::uint64_t{0}, std::uint64_t{2}}) {
    const auto other = MemberHeader::decode(with_version(version));
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().code(), Code::kUnsupported);
    EXPECT_EQ(other.error().asked(), version);
    EXPECT_EQ(other.error().allowed(), 1U);
    EXPECT_NE(remedy(other.error()).find("version of Remora"), std::string_view::npos);
  }
}

TEST(MemberHeader, IsAheadByWriterByConfigurationAndByGeneration) {
  GroupRecord record = record_of(example());
  EXPECT_FALSE(example().is_ahead_of(record));
  --record.epoch;
  EXPECT_TRUE(example().is_ahead_of(record));
  record = record_of(example());
  --record.adopted;
  EXPECT_TRUE(example().is_ahead_of(record));
  record = record_of(example());
  ++record.generation;
  record.epoch += 100;
  EXPECT_TRUE(example().is_ahead_of(record)) << "it cannot be compared";
}

TEST(MirrorLayout, DataFollowsTheBitmap) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
  EXPECT_EQ(detail::zone_count(1), 1U);
  EXPECT_EQ(detail::zone_count(kMiB), 1U);
  EXPECT_EQ(detail::zone_count(kMiB + 1), 2U);
  EXPECT_EQ(detail::bitmap_words(64 * kMiB), 1U);
  EXPECT_EQ(detail::bitmap_words(65 * kMiB), 2U);
  EXPECT_EQ(detail::mirror_data_offset(kGroupBytesMax), 8192U);
  EXPECT_EQ(detail::mirror_region_bytes(kMiB), kMiB + 8192U);
}

}  // namespace
}  // namespace remora::volume::test
