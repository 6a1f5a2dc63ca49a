#pragma once

/// The reason why a server refuses a connection over rdma, carried by its reject to the client.

#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include <remora/result.h>
#include <remora/verbs/connection.h>
#include <remora/verbs/connector.h>

namespace remora::transport::rdma {

/// Private data of a reject, big-endian; the rest of the field is padding. Rejects of older servers
/// carry none.
///
/// | bytes   | what |
/// |---------|------|
/// | 0 … 3   | "RMRR" |
/// | 4       | version of this table: 1 |
/// | 5 | Reason, as a number; a number that the client does not know means no reason |
/// | 6 | 1: the two amounts below are set; 0: they are zero |
/// | 7       | length of the text in bytes |
/// | 8 … 15 | the amount that was needed |
/// | 16 … 23 | the amount that is available |
/// | 24 … | the text: the operation that failed at the server, and its subject |
struct Rejection {
  static constexpr std::size_t kHeadBytes = 24;
  using Wire = std::array<std::byte, verbs::kMaxRejectDataBytes>;

  [[nodiscard]] static Wire to_wire(const Error& why);
  /// kConnectionRefused, with the server's reason. Empty for bytes that are not a rejection: any
  /// program can send bytes.
  [[nodiscard]] static std::optional<Error> from_wire(std::span<const std::byte> bytes);
};

/// The error with which a connection attempt of `connector` ended: the server's reason, if it sent
/// one, else `error`.
[[nodiscard]] Error told_by_server(const verbs::Connector& connector, const Error& error);

}  // namespace remora::transport::rdma
