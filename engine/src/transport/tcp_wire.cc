#include "transport/tcp_wire.h"

#include <bit>
#include <cstring>

#include "support/crc32c.h"

namespace remora::transport::tcp {

namespace {

constexpr std::uint32_t kMagic = 0x54524d52;  // "RMRT"
constexpr std::uint8_t kVersion = 1;
constexpr std::uint8_t kOptionPayloadCrc = 1;
constexpr std::uint8_t kFlagAnswered = 1;
constexpr std::uint8_t kOpcodeFirst = 1;
constexpr std::uint8_t kOpcodeLast = 6;

template <typename T>
T swapped(T value) noexcept {
  if constexpr (std::endian::native == std::endian::big && sizeof(T) == 8)
    return __builtin_bswap64(value);
  if constexpr (std::endian::native == std::endian::big && sizeof(T) == 4)
    return __builtin_bswap32(value);
  return value;
}

template <typename T>
void put(std::byte* at, T value) noexcept {
  value = swapped(value);
  std::memcpy(at, &value, sizeof value);
}

template <typename T>
T get(const std::byte* at) noexcept {
  T value{};
  std::memcpy(&value, at, sizeof value);
  return swapped(value);
}

std::uint8_t octet(std::byte byte) noexcept { return std::to_integer<std::uint8_t>(byte); }

/// Puts the CRC32C of all but the last four bytes there.
void seal(std::span<std::byte> bytes) noexcept {
  put(bytes.data() + bytes.size() - 4, crc32c(bytes.first(bytes.size() - 4)));
}
bool sealed(std::span<const std::byte> bytes) noexcept {
  return get<std::uint32_t>(bytes.data() + bytes.size() - 4) ==
         crc32c(bytes.first(bytes.size() - 4));
}

std::byte code_of(Opcode opcode) noexcept {
  return static_cast<std::byte>(static_cast<std::uint8_t>(opcode) + kOpcodeFirst);
}

/// What an introduction and its answer begin with.
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

std::array<std::byte, Introduction::kWireBytes> Introduction::to_wire() const noexcept {
  std::array<std::byte, kWireBytes> wire{};
  put_preface(wire.data(), purpose, payload_crc);
  put(wire.data() + 8, ticket.session_id);
  put(wire.data() + 16, ticket.secret);
  seal(wire);
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
  seal(wire);
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
  seal(wire);
  return wire;
}

std::optional<FrameHeader> FrameHeader::from_wire(
    std::span<const std::byte, kWireBytes> bytes) noexcept {
  const FrameHeader found{.length_bytes = get<std::uint32_t>(bytes.data()),
                          .message_crc = get<std::uint32_t>(bytes.data() + 4)};
  if (found.length_bytes == 0 || found.length_bytes > kControlMessageBytesMax || !sealed(bytes))
    return std::nullopt;
  return found;
}

void RequestHeader::to_wire(std::span<std::byte, kWireBytes> bytes) const noexcept {
  std::byte* at = bytes.data();
  put(at, std::uint32_t{0});
  at[0] = code_of(opcode);
  at[1] = answered ? std::byte{kFlagAnswered} : std::byte{0};
  put(at + 4, length_bytes);
  put(at + 8, address);
  put(at + 16, key);
  put(at + 20, sequence);
  put(at + 24, compare_or_add);
  put(at + 32, swap);
  put(at + 40, payload_crc);
  seal(bytes);
}

std::optional<RequestHeader> RequestHeader::from_wire(
    std::span<const std::byte, kWireBytes> bytes) noexcept {
  const std::byte* at = bytes.data();
  const std::uint8_t code = octet(at[0]);
  if (!sealed(bytes) || code < kOpcodeFirst || code > kOpcodeLast || octet(at[1]) > kFlagAnswered ||
      at[2] != std::byte{0} || at[3] != std::byte{0})
    return std::nullopt;
  const RequestHeader found{.opcode = static_cast<Opcode>(code - kOpcodeFirst),
                            .answered = at[1] != std::byte{0},
                            .length_bytes = get<std::uint32_t>(at + 4),
                            .address = get<std::uint64_t>(at + 8),
                            .key = get<std::uint32_t>(at + 16),
                            .sequence = get<std::uint32_t>(at + 20),
                            .compare_or_add = get<std::uint64_t>(at + 24),
                            .swap = get<std::uint64_t>(at + 32),
                            .payload_crc = get<std::uint32_t>(at + 40)};
  if (!found.answered && !is_write(found.opcode)) return std::nullopt;
  return found;
}

void AnswerHeader::to_wire(std::span<std::byte, kWireBytes> bytes) const noexcept {
  std::byte* at = bytes.data();
  put(at, std::uint32_t{0});
  at[0] = static_cast<std::byte>(status);
  at[1] = code_of(opcode);
  put(at + 4, sequence);
  put(at + 8, length_bytes);
  put(at + 12, payload_crc);
  seal(bytes);
}

std::optional<AnswerHeader> AnswerHeader::from_wire(
    std::span<const std::byte, kWireBytes> bytes) noexcept {
  const std::byte* at = bytes.data();
  const std::uint8_t code = octet(at[1]);
  if (!sealed(bytes) || octet(at[0]) > static_cast<std::uint8_t>(CompletionStatus::kGeneral) ||
      code < kOpcodeFirst || code > kOpcodeLast || at[2] != std::byte{0} || at[3] != std::byte{0})
    return std::nullopt;
  return AnswerHeader{.status = static_cast<CompletionStatus>(at[0]),
                      .opcode = static_cast<Opcode>(code - kOpcodeFirst),
                      .sequence = get<std::uint32_t>(at + 4),
                      .length_bytes = get<std::uint32_t>(at + 8),
                      .payload_crc = get<std::uint32_t>(at + 12)};
}

}  // namespace remora::transport::tcp
