#pragma once

/// The bytes that the rdma transport sends while it connects and in its notices, and its constants.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/control_message.h"
#include "transport/lane_ticket.h"
#include "transport/notice.h"

namespace remora::transport::rdma {

/// The most lanes of one session.
inline constexpr std::uint32_t kMaxLanes = 8;

enum class Purpose : std::uint8_t { kControl = 0, kLane = 1 };

/// Private data of a connection request, big-endian; the rest of the field is padding.
///
/// | bytes   | what |
/// |---------|------|
/// | 0 … 3   | "RMRA" |
/// | 4       | version of this table: 1 |
/// | 5       | purpose: 0 control channel, 1 lane |
/// | 6 … 7   | number of the lane, from 1; 0: the client does not say |
/// | 8 … 15  | session id; 0 for a control channel |
/// | 16 … 23 | lane secret of the session; 0 for a control channel |
/// | 24      | path MTU of the client: 1 for 256 bytes … 5 for 4096; 0: not told (older clients) |
struct Introduction {
  static constexpr std::size_t kWireBytes = 25;
  Purpose purpose = Purpose::kControl;
  LaneTicket ticket{};
  std::optional<std::uint32_t> lane{};  ///< from 0, below kMaxLanes
  std::uint32_t mtu_bytes = 0;          ///< 256 to 4096, a power of two; 0: not said

  [[nodiscard]] std::array<std::byte, kWireBytes> to_wire() const noexcept;
  /// Empty for bytes that are not an introduction: any program can send bytes.
  [[nodiscard]] static std::optional<Introduction> from_wire(
      std::span<const std::byte> bytes) noexcept;
};

/// A notice, sent on a lane after its write; big-endian.
///
/// | bytes   | what |
/// |---------|------|
/// | 0 … 7   | id of the grant |
/// | 8 … 15  | offset in the region |
/// | 16 … 23 | length in bytes |
/// | 24 … 27 | tag |
/// | 28 … 31 | zero |
inline constexpr std::size_t kNoticeWireBytes = 32;
using NoticeBytes = std::array<std::byte, kNoticeWireBytes>;
[[nodiscard]] NoticeBytes to_wire(const Notice& notice) noexcept;
[[nodiscard]] Notice notice_from_wire(std::span<const std::byte, kNoticeWireBytes> bytes) noexcept;
/// Receives that the server keeps posted on a lane. The NIC of a faster client sends again, until
/// the deadline of the client's operation.
inline constexpr std::uint32_t kNoticeReceives = 32;

/// The receives that each side of a control channel posts: for all requests that may be unanswered,
/// one event and its acknowledgement. Events are sent without a request, so there is always room
/// for one.
inline constexpr std::uint32_t kControlReceives = kMaxControlRequests + 2;
inline constexpr std::uint32_t kControlSends = kMaxControlRequests + 2;

/// Acknowledgement time-out of the queue pairs of a device's own test, 4.096 µs × 2^n: 67 ms on a
/// NIC, 1 s where the kernel (or an emulated machine) does the work and may be late. The time-outs
/// of sessions are in fabric_settings.h.
inline constexpr std::uint8_t kAckTimeoutHardware = 14;
inline constexpr std::uint8_t kAckTimeoutSoftware = 18;

/// Writes up to this length go inline: about what fits in a queue entry of four cache lines.
inline constexpr std::uint32_t kInlineBytes = 220;

}  // namespace remora::transport::rdma
