// Checksums of known texts.

#include "cli/checksum.h"

#include <gtest/gtest.h>
#include <string>
#include <string_view>

namespace remora::apps {
namespace {

std::span<const std::byte> as_bytes_of(std::string_view text) {
  return std::as_bytes(std::span{text});
}

std::string digest_of(ChecksumKind kind, std::string_view text) {
  Checksum sum = Checksum::make(kind).value();
  sum.update(as_bytes_of(text));
  return sum.digest();
}

TEST(Checksum, DigestsAreThoseOfTheStandards) {
  EXPECT_EQ(digest_of(ChecksumKind::kSha256, "abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of(ChecksumKind::kSha512, "abc"),
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
            "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f");
  EXPECT_EQ(digest_of(ChecksumKind::kBlake2b, "abc"),
            "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
            "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923");
}

TEST(Checksum, DigestOfAPartDoesNotEndIt) {
  Checksum sum = Checksum::make(ChecksumKind::kSha256).value();
  sum.update(as_bytes_of("a"));
  EXPECT_EQ(sum.digest(), digest_of(ChecksumKind::kSha256, "a"));
  sum.update(as_bytes_of("bc"));
  EXPECT_EQ(sum.digest(), digest_of(ChecksumKind::kSha256, "abc"));
}

TEST(Checksum, ZeroesAreAsBytes) {
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{200'000}}) {
    Checksum sum = Checksum::make(ChecksumKind::kSha256).value();
    sum.update_zeroes(length);
    EXPECT_EQ(sum.digest(), digest_of(ChecksumKind::kSha256, std::string(length, '\0'))) << length;
  }
}

TEST(Checksum, NamesAreThoseOfTheOption) {
  for (const ChecksumKind kind : kChecksumKinds)
    EXPECT_EQ(parse_checksum_kind(to_string(kind)), kind) << to_string(kind);
  EXPECT_FALSE(parse_checksum_kind("md5"));
  EXPECT_FALSE(parse_checksum_kind(""));
}

}  // namespace
}  // namespace remora::apps
