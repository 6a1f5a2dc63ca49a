#pragma once

/// The bytes of the tcp transport. All numbers are little-endian; every header ends in the CRC32C
/// of the bytes in front of it. This file checks the form of a peer's bytes; their user checks the
/// values.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "base/crc32c.h"
#include "transport/lane_ticket.h"
#include "transport/notice.h"
#include "transport/work_request.h"

namespace remora::transport::tcp {

namespace wire {

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

/// Writes into the last four bytes the CRC32C of all bytes before them.
template <std::size_t kBytes>
void seal(std::span<std::byte, kBytes> bytes) noexcept {
  put(bytes.data() + kBytes - 4, crc32c_of<kBytes - 4>(bytes.data()));
}
template <std::size_t kBytes>
bool sealed(std::span<const std::byte, kBytes> bytes) noexcept {
  return get<std::uint32_t>(bytes.data() + kBytes - 4) == crc32c_of<kBytes - 4>(bytes.data());
}

inline constexpr std::uint8_t kFlagAnswered = 1;
inline constexpr std::uint8_t kOpcodeFirst = 1;
inline constexpr std::uint8_t kOpcodeLast = 6;

inline std::uint8_t code_of(Opcode opcode) noexcept {
  return static_cast<std::uint8_t>(static_cast<std::uint8_t>(opcode) + kOpcodeFirst);
}

/// The first four bytes of requests and answers: `first`, `second` and two zeros.
inline std::uint32_t lead(std::uint8_t first, std::uint8_t second) noexcept {
  return std::uint32_t{first} | std::uint32_t{second} << 8U;
}

/// Two fields of four bytes, one after the other.
inline std::uint64_t pair(std::uint32_t first, std::uint32_t second) noexcept {
  return std::uint64_t{first} | std::uint64_t{second} << 32U;
}

}  // namespace wire

enum class Purpose : std::uint8_t { kControl = 0, kLane = 1 };

/// The length of the magic with which both sides begin, which tells another protocol before the
/// rest has come.
inline constexpr std::size_t kMagicBytes = 4;
inline constexpr std::string_view kMagicText = "RMRT";
[[nodiscard]] inline bool begins_as_ours(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= kMagicBytes &&
         std::memcmp(bytes.data(), kMagicText.data(), kMagicBytes) == 0;
}
/// Whether these bytes are the beginning of an HTTP answer.
[[nodiscard]] inline bool is_http_answer(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= kMagicBytes && std::memcmp(bytes.data(), "HTTP", kMagicBytes) == 0;
}
/// Whether these bytes are the beginning of a usual HTTP request.
[[nodiscard]] bool is_http_request(std::span<const std::byte> bytes) noexcept;

/// First bytes of every connection, client to server.
///
/// | bytes   | what |
/// |---------|------|
/// | 0 … 3   | "RMRT" |
/// | 4       | version of these tables: 1 |
/// | 5       | purpose: 0 control channel, 1 lane |
/// | 6       | options of a lane: bit 0 payload CRC; 0 for a control channel |
/// | 7       | zero |
/// | 8 … 15  | session id; 0 for a control channel |
/// | 16 … 23 | lane secret, told by Welcome; 0 for a control channel |
/// | 24 … 27 | zero |
/// | 28 … 31 | CRC32C of bytes 0 … 27 |
struct Introduction {
  static constexpr std::size_t kWireBytes = 32;
  Purpose purpose = Purpose::kControl;
  bool payload_crc = false;
  LaneTicket ticket{};

  [[nodiscard]] std::array<std::byte, kWireBytes> to_wire() const noexcept;
  /// Empty for bytes that are not an introduction: any program can send bytes.
  [[nodiscard]] static std::optional<Introduction> from_wire(
      std::span<const std::byte, kWireBytes> bytes) noexcept;
};

/// The server's answer to an introduction that it accepts; it closes other connections.
struct Welcome {
  static constexpr std::size_t kWireBytes = 16;
  Purpose purpose = Purpose::kControl;
  bool payload_crc = false;

  [[nodiscard]] std::array<std::byte, kWireBytes> to_wire() const noexcept;
  [[nodiscard]] static std::optional<Welcome> from_wire(
      std::span<const std::byte, kWireBytes> bytes) noexcept;
};

/// Precedes every message of the control channel.
struct FrameHeader {
  static constexpr std::size_t kWireBytes = 12;
  std::uint32_t length_bytes = 0;
  std::uint32_t message_crc = 0;

  [[nodiscard]] std::array<std::byte, kWireBytes> to_wire() const noexcept;
  [[nodiscard]] static std::optional<FrameHeader> from_wire(
      std::span<const std::byte, kWireBytes> bytes) noexcept;
};

/// The most bytes of one read or write.
inline constexpr std::uint32_t kMaxTransferBytes = 1U << 20U;
/// Payload of this length or more is sent from and received into its own memory. Shorter payload is
/// copied next to its header, which costs less than two more vectors of a send or receive.
inline constexpr std::uint32_t kStraightFrom = 1024;

/// A request of a lane; the bytes of a write follow it.
///
/// | bytes   | what |
/// |---------|------|
/// | 0       | 1 read, 2 write, 3 compare and swap, 4 fetch and add, 5 write zeroes, 6 notify |
/// | 1 | bit 0: to be answered; always set except for the two writes |
/// | 2 … 3   | zero |
/// | 4 … 7   | length in bytes; 8 for the atomics, 0 for notify |
/// | 8 … 15  | address: offset in the region |
/// | 16 … 19 | key of the extent; the tag of a notify |
/// | 20 … 23 | sequence: one more than that of the request before |
/// | 24 … 31 | value to compare with or to add; the length of a notify's write |
/// | 32 … 39 | value to store; the grant of a notify |
/// | 40 … 43 | CRC32C of a write's bytes if the lane has payload CRC, else 0 |
/// | 44 … 47 | CRC32C of bytes 0 … 43 |
struct RequestHeader {
  static constexpr std::size_t kWireBytes = 48;
  Opcode opcode = Opcode::kRead;
  bool answered = true;
  std::uint32_t length_bytes = 0;
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t sequence = 0;
  std::uint64_t compare_or_add = 0;
  std::uint64_t swap = 0;
  std::uint32_t payload_crc = 0;

  /// The header that carries `notice`; the caller sets the sequence.
  [[nodiscard]] static RequestHeader notify(const Notice& notice) noexcept {
    return {.opcode = Opcode::kNotify,
            .address = notice.offset_bytes,
            .key = notice.tag,
            .compare_or_add = notice.length_bytes,
            .swap = notice.grant_id};
  }
  /// The notice of a header whose opcode is kNotify.
  [[nodiscard]] Notice notice() const noexcept {
    return {.grant_id = swap, .offset_bytes = address, .length_bytes = compare_or_add, .tag = key};
  }

  void to_wire(std::span<std::byte, kWireBytes> bytes) const noexcept;
  [[nodiscard]] static std::optional<RequestHeader> from_wire(
      std::span<const std::byte, kWireBytes> bytes) noexcept;

  /// The memory that an unchecked header names.
  struct Place {
    std::uint64_t address;
    std::uint32_t key;
    std::uint32_t length_bytes;
    std::uint32_t payload_bytes;  ///< that follow the header
  };
  [[nodiscard]] static Place place_of(std::span<const std::byte, kWireBytes> bytes) noexcept;
};

/// The answer to a request, and to the unanswered writes before it; the bytes of a read, or the old
/// value (8 bytes) of an atomic, follow it. An answer that reports a failure has no payload and is
/// the lane's last.
///
/// | bytes   | what |
/// |---------|------|
/// | 0 | 0, or the error of the request as an ibv_wc_status |
/// | 1 | operation, as in the request |
/// | 2 … 3   | zero |
/// | 4 … 7   | sequence of the request |
/// | 8 … 11 | length of the payload |
/// | 12 … 15 | CRC32C of the payload if the lane has payload CRC, else 0 |
/// | 16 … 19 | CRC32C of bytes 0 … 15 |
struct AnswerHeader {
  static constexpr std::size_t kWireBytes = 20;
  CompletionStatus status = CompletionStatus::kSuccess;
  Opcode opcode = Opcode::kRead;
  std::uint32_t sequence = 0;
  std::uint32_t length_bytes = 0;
  std::uint32_t payload_crc = 0;

  void to_wire(std::span<std::byte, kWireBytes> bytes) const noexcept;
  [[nodiscard]] static std::optional<AnswerHeader> from_wire(
      std::span<const std::byte, kWireBytes> bytes) noexcept;
  /// Whether these bytes, with their CRC, report the success of that request without payload CRC.
  [[nodiscard]] static bool tells_of_success(std::span<const std::byte, kWireBytes> bytes,
                                             Opcode opcode, std::uint32_t sequence,
                                             std::uint32_t length_bytes) noexcept;
};

// Inline, since called once for each operation on either side.

inline void RequestHeader::to_wire(std::span<std::byte, kWireBytes> bytes) const noexcept {
  std::byte* const at = bytes.data();
  const auto flags = answered ? wire::kFlagAnswered : std::uint8_t{0};
  wire::put(at, wire::pair(wire::lead(wire::code_of(opcode), flags), length_bytes));
  wire::put(at + 8, address);
  wire::put(at + 16, wire::pair(key, sequence));
  wire::put(at + 24, compare_or_add);
  wire::put(at + 32, swap);
  wire::put(at + 40, payload_crc);
  wire::seal(bytes);
}

inline std::optional<RequestHeader> RequestHeader::from_wire(
    std::span<const std::byte, kWireBytes> bytes) noexcept {
  const std::byte* const at = bytes.data();
  const auto lead = wire::get<std::uint32_t>(at);
  const auto code = static_cast<std::uint8_t>(lead);
  if (!wire::sealed(bytes) || code < wire::kOpcodeFirst || code > wire::kOpcodeLast ||
      lead >> 8U > wire::kFlagAnswered)
    return std::nullopt;
  const RequestHeader found{.opcode = static_cast<Opcode>(code - wire::kOpcodeFirst),
                            .answered = lead >> 8U != 0,
                            .length_bytes = wire::get<std::uint32_t>(at + 4),
                            .address = wire::get<std::uint64_t>(at + 8),
                            .key = wire::get<std::uint32_t>(at + 16),
                            .sequence = wire::get<std::uint32_t>(at + 20),
                            .compare_or_add = wire::get<std::uint64_t>(at + 24),
                            .swap = wire::get<std::uint64_t>(at + 32),
                            .payload_crc = wire::get<std::uint32_t>(at + 40)};
  if (!found.answered && !is_write(found.opcode)) return std::nullopt;
  // A notify has no payload, and its answer has none.
  if (found.opcode == Opcode::kNotify && found.length_bytes != 0) return std::nullopt;
  return found;
}

inline RequestHeader::Place RequestHeader::place_of(
    std::span<const std::byte, kWireBytes> bytes) noexcept {
  const std::byte* const at = bytes.data();
  const auto length = wire::get<std::uint32_t>(at + 4);
  const bool write = at[0] == std::byte{wire::code_of(Opcode::kWrite)};
  return {.address = wire::get<std::uint64_t>(at + 8),
          .key = wire::get<std::uint32_t>(at + 16),
          .length_bytes = length,
          .payload_bytes = write ? length : 0};
}

inline void AnswerHeader::to_wire(std::span<std::byte, kWireBytes> bytes) const noexcept {
  std::byte* const at = bytes.data();
  const auto first = wire::lead(static_cast<std::uint8_t>(status), wire::code_of(opcode));
  wire::put(at, wire::pair(first, sequence));
  wire::put(at + 8, wire::pair(length_bytes, payload_crc));
  wire::seal(bytes);
}

inline std::optional<AnswerHeader> AnswerHeader::from_wire(
    std::span<const std::byte, kWireBytes> bytes) noexcept {
  const std::byte* const at = bytes.data();
  const auto lead = wire::get<std::uint32_t>(at);
  const auto status = static_cast<std::uint8_t>(lead);
  const std::uint32_t code = lead >> 8U;
  if (!wire::sealed(bytes) || status > static_cast<std::uint8_t>(CompletionStatus::kGeneral) ||
      code < wire::kOpcodeFirst || code > wire::kOpcodeLast)
    return std::nullopt;
  return AnswerHeader{.status = static_cast<CompletionStatus>(status),
                      .opcode = static_cast<Opcode>(code - wire::kOpcodeFirst),
                      .sequence = wire::get<std::uint32_t>(at + 4),
                      .length_bytes = wire::get<std::uint32_t>(at + 8),
                      .payload_crc = wire::get<std::uint32_t>(at + 12)};
}

inline bool AnswerHeader::tells_of_success(std::span<const std::byte, kWireBytes> bytes,
                                           Opcode opcode, std::uint32_t sequence,
                                           std::uint32_t length_bytes) noexcept {
  const auto first =
      wire::lead(static_cast<std::uint8_t>(CompletionStatus::kSuccess), wire::code_of(opcode));
  return wire::get<std::uint64_t>(bytes.data()) == wire::pair(first, sequence) &&
         wire::get<std::uint64_t>(bytes.data() + 8) == wire::pair(length_bytes, 0) &&
         wire::sealed(bytes);
}

/// The number of payload bytes of the answer to a request.
[[nodiscard]] constexpr std::uint32_t answer_bytes(Opcode opcode,
                                                   std::uint32_t length_bytes) noexcept {
  return is_write(opcode) || opcode == Opcode::kNotify ? 0 : length_bytes;
}

}  // namespace remora::transport::tcp
