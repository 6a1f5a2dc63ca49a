#pragma once

/// The bytes of the tcp transport. All numbers are little-endian; every header ends in the CRC32C
/// of the bytes in front of it. What comes from a peer is checked here for form, and for sense by
/// who uses it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/transport.h"

namespace remora::transport::tcp {

enum class Purpose : std::uint8_t { kControl = 0, kLane = 1 };

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
  /// Nothing for what is not an introduction: the bytes come from anybody.
  [[nodiscard]] static std::optional<Introduction> from_wire(
      std::span<const std::byte, kWireBytes> bytes) noexcept;
};

/// The server's answer to an introduction it takes; it hangs up on any other.
///
/// | bytes   | what |
/// |---------|------|
/// | 0 … 3   | "RMRT" |
/// | 4       | version of these tables: 1 |
/// | 5       | purpose, as introduced |
/// | 6       | options that hold: bit 0 payload CRC |
/// | 7       | zero |
/// | 8 … 11  | zero |
/// | 12 … 15 | CRC32C of bytes 0 … 11 |
struct Welcome {
  static constexpr std::size_t kWireBytes = 16;
  Purpose purpose = Purpose::kControl;
  bool payload_crc = false;

  [[nodiscard]] std::array<std::byte, kWireBytes> to_wire() const noexcept;
  [[nodiscard]] static std::optional<Welcome> from_wire(
      std::span<const std::byte, kWireBytes> bytes) noexcept;
};

/// In front of every message of the control channel.
///
/// | bytes  | what |
/// |--------|------|
/// | 0 … 3  | length of the message, 1 … 16384 |
/// | 4 … 7  | CRC32C of the message |
/// | 8 … 11 | CRC32C of bytes 0 … 7 |
struct FrameHeader {
  static constexpr std::size_t kWireBytes = 12;
  std::uint32_t length_bytes = 0;
  std::uint32_t message_crc = 0;

  [[nodiscard]] std::array<std::byte, kWireBytes> to_wire() const noexcept;
  [[nodiscard]] static std::optional<FrameHeader> from_wire(
      std::span<const std::byte, kWireBytes> bytes) noexcept;
};

/// Bytes of one read or write.
inline constexpr std::uint32_t kTransferBytesMax = 1U << 20U;

/// A request of a lane; the bytes of a write follow it.
///
/// | bytes   | what |
/// |---------|------|
/// | 0       | 1 read, 2 write, 3 compare and swap, 4 fetch and add, 5 write zeroes, 6 notify |
/// | 1       | bit 0: to be answered; always set but for the two writes |
/// | 2 … 3   | zero |
/// | 4 … 7   | length in bytes; 8 for the atomics, 0 for notify |
/// | 8 … 15  | address: offset in the region |
/// | 16 … 19 | key of the extent; the tag of a notify |
/// | 20 … 23 | sequence: one more than that of the request before |
/// | 24 … 31 | value to compare with or to add; the length that a notify tells of |
/// | 32 … 39 | value to put there; the grant of a notify |
/// | 40 … 43 | CRC32C of a write's bytes where the lane has payload CRC, else 0 |
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

  void to_wire(std::span<std::byte, kWireBytes> bytes) const noexcept;
  [[nodiscard]] static std::optional<RequestHeader> from_wire(
      std::span<const std::byte, kWireBytes> bytes) noexcept;
};

/// The answer to a request, and to the unanswered writes before it; the bytes of a read, or the old
/// value (8 bytes) of an atomic, follow it. One that tells of a failure has nothing behind it and
/// is the lane's last.
///
/// | bytes   | what |
/// |---------|------|
/// | 0       | 0, or why the request failed, as ibv_wc_status has it |
/// | 1       | what was asked, as in the request |
/// | 2 … 3   | zero |
/// | 4 … 7   | sequence of the request |
/// | 8 … 11  | length of what follows |
/// | 12 … 15 | CRC32C of what follows where the lane has payload CRC, else 0 |
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
};

/// Bytes that follow the answer to a request.
[[nodiscard]] constexpr std::uint32_t answer_bytes(Opcode opcode,
                                                   std::uint32_t length_bytes) noexcept {
  return is_write(opcode) ? 0 : length_bytes;
}

}  // namespace remora::transport::tcp
