#pragma once

/// Endpoints: the data by which a peer reaches a queue pair, sent over any other channel.
///
/// Thread safety: values.

#include <array>
#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>
#include <ostream>
#include <span>

#include <remora/result.h>
#include <remora/verbs/gid.h>

namespace remora::verbs {

/// How the peer reaches a connected queue pair.
///
/// Wire form, big-endian:
///
/// | bytes  | what                                            |
/// |--------|-------------------------------------------------|
/// | 0..15  | GID                                             |
/// | 16..19 | queue pair number (24 bits)                     |
/// | 20..23 | first packet sequence number (24 bits)          |
/// | 24..25 | LID, 0 on Ethernet                              |
/// | 26     | path MTU as ibv_mtu (1 = 256 ... 5 = 4096 bytes)|
/// | 27     | 0                                               |
struct Endpoint {
  static constexpr std::size_t kWireBytes = 28;

  Gid gid;
  std::uint32_t qp_number = 0;  ///< 24 bits
  std::uint32_t psn = 0;        ///< 24 bits
  std::uint16_t lid = 0;        ///< 0 on Ethernet
  ibv_mtu mtu = IBV_MTU_1024;   ///< the largest of this end: the path uses the smaller one of both

  /// The wire form above.
  [[nodiscard]] std::array<std::byte, kWireBytes> to_wire() const noexcept;
  /// Checked: the bytes come from a peer. Errors: kProtocol.
  [[nodiscard]] static Result<Endpoint> from_wire(std::span<const std::byte> bytes);

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};
/// "qp 17 psn 1 gid ... lid 0 mtu 1024".
std::ostream& operator<<(std::ostream& out, const Endpoint& endpoint);

/// The address of a datagram queue pair, for any peer.
///
/// Wire form, big-endian:
///
/// | bytes  | what                        |
/// |--------|-----------------------------|
/// | 0..15  | GID                         |
/// | 16..19 | queue pair number (24 bits) |
/// | 20..23 | queue key                   |
/// | 24..25 | LID, 0 on Ethernet          |
/// | 26     | path MTU as ibv_mtu         |
/// | 27     | 1                           |
struct DatagramEndpoint {
  static constexpr std::size_t kWireBytes = 28;

  Gid gid;
  std::uint32_t qp_number = 0;
  std::uint32_t qkey = 0;
  std::uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;  ///< the limit of a message

  /// The wire form above.
  [[nodiscard]] std::array<std::byte, kWireBytes> to_wire() const noexcept;
  /// Checked: the bytes come from a peer. Errors: kProtocol.
  [[nodiscard]] static Result<DatagramEndpoint> from_wire(std::span<const std::byte> bytes);

  friend bool operator==(const DatagramEndpoint&, const DatagramEndpoint&) = default;
};
/// "qp 17 qkey 1 gid ... lid 0 mtu 1024".
std::ostream& operator<<(std::ostream& out, const DatagramEndpoint& endpoint);

}  // namespace remora::verbs
