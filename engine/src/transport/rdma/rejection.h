#pragma once

/// Why a server does not take a connection over rdma: what its reject carries to the client.

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
/// | 5       | Reason, as a number; larger ones than the client knows are none |
/// | 6       | 1: the next two stand; 0: they are zero |
/// | 7       | length of the text in bytes |
/// | 8 … 15  | the amount that was needed |
/// | 16 … 23 | the amount that is there |
/// | 24 …    | the text: what failed at the server, and on what |
struct Rejection {
  static constexpr std::size_t kHeadBytes = 24;
  using Wire = std::array<std::byte, verbs::kMaxRejectDataBytes>;

  [[nodiscard]] static Wire to_wire(const Error& why);
  /// kConnectionRefused, with what the server has said. Nothing for bytes that are not this: any
  /// program can send them.
  [[nodiscard]] static std::optional<Error> from_wire(std::span<const std::byte> bytes);
};

/// `error`, with which a connection of `connector` ended, or what the server has said of it.
[[nodiscard]] Error told_by_server(const verbs::Connector& connector, const Error& error);

}  // namespace remora::transport::rdma
