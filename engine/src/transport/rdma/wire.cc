#include "transport/rdma/wire.h"

#include <bit>

namespace remora::transport::rdma {

namespace {

void put(std::span<std::byte> bytes, std::uint64_t value) noexcept {
  for (std::size_t i = bytes.size(); i-- > 0; value >>= 8U)
    bytes[i] = static_cast<std::byte>(value & 0xffU);
}

std::uint64_t get(std::span<const std::byte> bytes) noexcept {
  std::uint64_t value = 0;
  for (const std::byte byte : bytes) value = value << 8U | std::to_integer<std::uint64_t>(byte);
  return value;
}

constexpr std::uint32_t kIntroductionMagic = 0x524d5241;  // "RMRA"
constexpr std::uint8_t kIntroductionVersion = 1;
/// The length of an introduction from a client that does not tell its path MTU.
constexpr std::size_t kLeastBytes = 24;
constexpr unsigned kMaxMtuCode = 5;

}  // namespace

std::array<std::byte, Introduction::kWireBytes> Introduction::to_wire() const noexcept {
  std::array<std::byte, kWireBytes> wire{};
  const std::span all{wire};
  put(all.subspan(0, 4), kIntroductionMagic);
  wire[4] = std::byte{kIntroductionVersion};
  wire[5] = static_cast<std::byte>(purpose);
  put(all.subspan(6, 2), lane ? *lane + 1 : 0);
  put(all.subspan(8, 8), ticket.session_id);
  put(all.subspan(16, 8), ticket.secret);
  wire[24] = static_cast<std::byte>(mtu_bytes == 0 ? 0 : std::bit_width(mtu_bytes) - 8);
  return wire;
}

std::optional<Introduction> Introduction::from_wire(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < kLeastBytes || get(bytes.subspan(0, 4)) != kIntroductionMagic ||
      bytes[4] != std::byte{kIntroductionVersion} || bytes[5] > std::byte{1} ||
      get(bytes.subspan(6, 2)) > kMaxLanes)
    return std::nullopt;
  Introduction said{
      .purpose = static_cast<Purpose>(bytes[5]),
      .ticket = {.session_id = get(bytes.subspan(8, 8)), .secret = get(bytes.subspan(16, 8))}};
  if (const std::uint64_t number = get(bytes.subspan(6, 2)); number != 0) {
    if (said.purpose != Purpose::kLane) return std::nullopt;
    said.lane = static_cast<std::uint32_t>(number - 1);
  }
  if (bytes.size() > kLeastBytes) {
    const auto mtu = std::to_integer<unsigned>(bytes[kLeastBytes]);
    if (mtu > kMaxMtuCode) return std::nullopt;
    if (mtu != 0) said.mtu_bytes = 128U << mtu;
  }
  return said;
}

NoticeBytes to_wire(const Notice& notice) noexcept {
  NoticeBytes wire{};
  const std::span all{wire};
  put(all.subspan(0, 8), notice.grant_id);
  put(all.subspan(8, 8), notice.offset_bytes);
  put(all.subspan(16, 8), notice.length_bytes);
  put(all.subspan(24, 4), notice.tag);
  return wire;
}

Notice notice_from_wire(std::span<const std::byte, kNoticeWireBytes> bytes) noexcept {
  return {.grant_id = get(bytes.subspan(0, 8)),
          .offset_bytes = get(bytes.subspan(8, 8)),
          .length_bytes = get(bytes.subspan(16, 8)),
          .tag = static_cast<std::uint32_t>(get(bytes.subspan(24, 4)))};
}

}  // namespace remora::transport::rdma
