#pragma once

/// What the rdma transport says while it connects, and numbers both sides agree on.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/transport.h"

namespace remora::transport::rdma {

enum class Purpose : std::uint8_t { kControl = 0, kLane = 1 };

/// Private data of a connection request, big-endian; the rest of the field is padding.
///
/// | bytes   | what |
/// |---------|------|
/// | 0 … 3   | "RMRA" |
/// | 4       | version of this table: 1 |
/// | 5       | purpose: 0 control channel, 1 lane |
/// | 6 … 7   | zero |
/// | 8 … 15  | session id; 0 for a control channel |
/// | 16 … 23 | lane secret of the session; 0 for a control channel |
struct Introduction {
  static constexpr std::size_t kWireBytes = 24;
  Purpose purpose = Purpose::kControl;
  LaneTicket ticket;

  [[nodiscard]] std::array<std::byte, kWireBytes> to_wire() const noexcept;
  /// Nothing for what is not an introduction: the bytes come from anybody.
  [[nodiscard]] static std::optional<Introduction> from_wire(
      std::span<const std::byte> bytes) noexcept;
};

/// Receives posted on either side of a control channel: all requests that may be unanswered, and
/// one more for the peer's haste.
inline constexpr std::uint32_t kControlReceives = kControlRequestsMax + 1;
inline constexpr std::uint32_t kControlSends = kControlRequestsMax;

/// Acknowledgement time-out of queue pairs, 4.096 µs × 2^n: 67 ms on a NIC, 1 s where the kernel
/// (or an emulated machine) does the work and may be late.
inline constexpr std::uint8_t kAckTimeoutHardware = 14;
inline constexpr std::uint8_t kAckTimeoutSoftware = 18;

/// Writes up to here go inline: about what fits a queue entry of four cache lines.
inline constexpr std::uint32_t kInlineBytes = 220;

}  // namespace remora::transport::rdma
