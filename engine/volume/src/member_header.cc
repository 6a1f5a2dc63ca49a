#include "member_header.h"

#include <algorithm>

namespace remora::volume::detail {

namespace {

constexpr std::uint64_t kMagic = 0x3152494d41524d52;  // "RMRAMIR1"
constexpr std::uint64_t kVersion = 1;
constexpr std::uint64_t kPromotingBit = 256;
constexpr std::size_t kWordBytes = 8;
constexpr std::size_t kChecksumAt = MemberHeader::kBytes - kWordBytes;

void put(MemberHeader::Bytes& bytes, std::size_t word, std::uint64_t value) noexcept {
  for (std::size_t i = 0; i < kWordBytes; ++i)
    bytes[word * kWordBytes + i] = static_cast<std::byte>(value >> (8 * i));
}

std::uint64_t word_at(std::span<const std::byte, MemberHeader::kBytes> bytes,
                      std::size_t word) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < kWordBytes; ++i)
    value |= std::to_integer<std::uint64_t>(bytes[word * kWordBytes + i]) << (8 * i);
  return value;
}

/// FNV-1a: it has to notice a header that was written in part only.
std::uint64_t checksum(std::span<const std::byte, MemberHeader::kBytes> bytes) noexcept {
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const std::byte each : bytes.first<kChecksumAt>())
    sum = (sum ^ std::to_integer<std::uint64_t>(each)) * 0x100000001b3;
  return sum;
}

}  // namespace

MemberHeader::Bytes MemberHeader::encode() const noexcept {
  Bytes bytes{};
  put(bytes, 0, kMagic);
  put(bytes, 1, kVersion);
  put(bytes, 2, generation);
  put(bytes, 3, volume_id);
  put(bytes, 4, group);
  put(bytes, 5, writer_epoch);
  put(bytes, 6, epoch);
  put(bytes, 7, static_cast<std::uint64_t>(role) | (promoting ? kPromotingBit : 0));
  put(bytes, 8, checksum(bytes));
  return bytes;
}

Result<MemberHeader> MemberHeader::decode(std::span<const std::byte, kBytes> bytes) {
  const auto is_zero = [](std::byte each) { return each == std::byte{0}; };
  if (std::all_of(bytes.begin(), bytes.end(), is_zero)) return MemberHeader{};
  constexpr Operation kOperation{"header of a member"};
  if (word_at(bytes, 0) != kMagic || word_at(bytes, 8) != checksum(bytes))
    return Error{Code::kProtocol, kOperation};
  if (const std::uint64_t version = word_at(bytes, 1); version != kVersion)
    return Error{Code::kUnsupported, kOperation}.with_limit(version, kVersion);
  MemberHeader header;
  header.generation = word_at(bytes, 2);
  header.volume_id = word_at(bytes, 3);
  header.group = word_at(bytes, 4);
  header.writer_epoch = word_at(bytes, 5);
  header.epoch = word_at(bytes, 6);
  const std::uint64_t role = word_at(bytes, 7) & ~kPromotingBit;
  if (role > static_cast<std::uint64_t>(MemberRole::kPrimary))
    return Error{Code::kProtocol, kOperation};
  header.role = static_cast<MemberRole>(role);
  header.promoting = (word_at(bytes, 7) & kPromotingBit) != 0;
  return header;
}

bool MemberHeader::is_ahead_of(const GroupRecord& record) const noexcept {
  if (*this == MemberHeader{}) return false;
  return generation != record.generation || writer_epoch > record.adopted || epoch > record.epoch;
}

}  // namespace remora::volume::detail
