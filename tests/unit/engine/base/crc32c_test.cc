#include "base/crc32c.h"

#include <cstddef>
#include <cstring>
#include <gtest/gtest.h>
#include <string_view>
#include <vector>

namespace remora {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// Source: RFC 3720, appendix B.4.
struct Vector {
  std::vector<std::byte> bytes;
  std::uint32_t crc;
};
std::vector<Vector> vectors() {
  std::vector<std::byte> rising(32);
  std::vector<std::byte> falling(32);
  for (std::size_t i = 0; i < 32; ++i) {
    rising[i] = static_cast<std::byte>(i);
    falling[i] = static_cast<std::byte>(31 - i);
  }
  std::vector<std::byte> scsi_read(48);
  scsi_read[0] = std::byte{0x01};
  scsi_read[1] = std::byte{0xc0};
  scsi_read[16] = std::byte{0x14};
  scsi_read[22] = std::byte{0x04};
  scsi_read[27] = std::byte{0x14};
  scsi_read[31] = std::byte{0x18};
  scsi_read[32] = std::byte{0x28};
  scsi_read[40] = std::byte{0x02};
  return {{{}, 0},
          {bytes_of("123456789"), 0xe3069283},
          {std::vector<std::byte>(32), 0x8a9136aa},
          {std::vector<std::byte>(32, std::byte{0xff}), 0x62a8ab43},
          {rising, 0x46dd794e},
          {falling, 0x113fdb5c},
          {scsi_read, 0xd9963a56}};
}

TEST(Crc32c, GivesTheVectorsOfTheRfc) {
  for (const Vector& vector : vectors()) {
    EXPECT_EQ(crc32c(vector.bytes), vector.crc) << vector.bytes.size();
    EXPECT_EQ(crc32c_software(vector.bytes), vector.crc) << vector.bytes.size();
  }
}

TEST(Crc32c, InstructionAndTablesAgreeAtEachLengthAndAlignment) {
  std::vector<std::byte> bytes(300);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + i / 7);
  for (std::size_t start = 0; start < 9; ++start)
    for (std::size_t length = 0; length <= 280; ++length) {
      const auto part = std::span{bytes}.subspan(start, length);
      ASSERT_EQ(crc32c(part), crc32c_software(part)) << start << ' ' << length;
    }
}

TEST(Crc32c, GoesOnWhereItStopped) {
  const std::vector<std::byte> bytes = bytes_of("the quick brown fox jumps over the lazy dog");
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    const std::span all{bytes};
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), crc32c(all));
    EXPECT_EQ(crc32c_software(all.subspan(cut), crc32c_software(all.first(cut))), crc32c(all));
  }
}

template <std::size_t kBytes>
void expect_inline_agrees(const std::byte* at) {
  EXPECT_EQ(crc32c_of<kBytes>(at), crc32c_software({at, kBytes})) << kBytes;
}

TEST(Crc32c, InlineSumsOfHeadersAgree) {
  std::vector<std::byte> bytes(60);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 41 + i / 3);
  for (std::size_t start = 0; start < 9; ++start) {
    expect_inline_agrees<4>(&bytes[start]);
    expect_inline_agrees<8>(&bytes[start]);
    expect_inline_agrees<12>(&bytes[start]);
    expect_inline_agrees<16>(&bytes[start]);
    expect_inline_agrees<28>(&bytes[start]);
    expect_inline_agrees<44>(&bytes[start]);
  }
}

}  // namespace
}  // namespace remora
