#include "transport/tcp/wire.h"

#include "transport/control_message.h"

namespace remora::transport::tcp {

using wire::get;
using wire::put;
using wire::seal;
using wire::sealed;

namespace {

constexpr std::uint32_t kMagic = 0x54524d52;  // "RMRT"
constexpr std::uint8_t kVersion = 1;
constexpr std::uint8_t kOptionPayloadCrc = 1;

std::uint8_t octet(std::byte byte) noexcept { return std::to_integer<std::uint8_t>(byte); }

/// Writes the first bytes of an introduction and of its answer.
void put_preface(std::byte* at, Purpose purpose, bool payload_crc) noexcept {
  put(at, kMagic);
  at[4] = std::byte{kVersion};
  at[5] = static_cast<std::byte>(purpose);
  at[6] = payload_crc ? std::byte{kOptionPayloadCrc} : std::byte{0};
}
bool is_preface(const std::byte* at) noexcept {
  return get<std::uint32_t>(at) == kMagic && octet(at[4]) == kVersion && octet(at[5]) <= 1 &&
         octet(at[6]) <= kOptionPayloadCrc && octet(at[7]) == 0;
}

}  // namespace

bool is_http_request(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < kMagicBytes) return false;
  for (const std::string_view method : {"GET ", "HEAD", "POST", "PUT ", "OPTI", "DELE"})
    if (std::memcmp(bytes.data(), method.data(), kMagicBytes) == 0) return true;
  return false;
}

std::array<std::byte, Introduction::kWireBytes> Introduction::to_wire() const noexcept {
  std::array<std::byte, kWireBytes> wire{};
  put_preface(wire.data(), purpose, payload_crc);
  put(wire.data() + 8, ticket.session_id);
  put(wire.data() + 16, ticket.secret);
  seal(std::span{wire});
  return wire;
}

std::optional<Introduction> Introduction::from_wire(
    std::span<const std::byte, kWireBytes> bytes) noexcept {
  const std::byte* at = bytes.data();
  if (!is_preface(at) || get<std::uint32_t>(at + 24) != 0 || !sealed(bytes)) return std::nullopt;
  const Introduction found{
      .purpose = static_cast<Purpose>(at[5]),
      .payload_crc = at[6] != std::byte{0},
      .ticket = {.session_id = get<std::uint64_t>(at + 8), .secret = get<std::uint64_t>(at + 16)}};
  const bool bare = !found.payload_crc && found.ticket.session_id == 0 && found.ticket.secret == 0;
  if (found.purpose == Purpose::kControl && !bare) return std::nullopt;
  return found;
}

std::array<std::byte, Welcome::kWireBytes> Welcome::to_wire() const noexcept {
  std::array<std::byte, kWireBytes> wire{};
  put_preface(wire.data(), purpose, payload_crc);
  seal(std::span{wire});
  return wire;
}

std::optional<Welcome> Welcome::from_wire(std::span<const std::byte, kWireBytes> bytes) noexcept {
  const std::byte* at = bytes.data();
  if (!is_preface(at) || get<std::uint32_t>(at + 8) != 0 || !sealed(bytes)) return std::nullopt;
  return Welcome{.purpose = static_cast<Purpose>(at[5]), .payload_crc = at[6] != std::byte{0}};
}

std::array<std::byte, FrameHeader::kWireBytes> FrameHeader::to_wire() const noexcept {
  std::array<std::byte, kWireBytes> wire{};
  put(wire.data(), length_bytes);
  put(wire.data() + 4, message_crc);
  seal(std::span{wire});
  return wire;
}

std::optional<FrameHeader> FrameHeader::from_wire(
    std::span<const std::byte, kWireBytes> bytes) noexcept {
  const FrameHeader found{.length_bytes = get<std::uint32_t>(bytes.data()),
                          .message_crc = get<std::uint32_t>(bytes.data() + 4)};
  if (found.length_bytes == 0 || found.length_bytes > kMaxControlMessageBytes || !sealed(bytes))
    return std::nullopt;
  return found;
}

}  // namespace remora::transport::tcp
