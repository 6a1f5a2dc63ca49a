#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include <remora/result.h>

#include "transport/control_message.h"
#include "transport/tcp/wire.h"

namespace remora::transport::tcp {

/// Receives the messages of a control channel, each into memory of its own. Between messages it has
/// no memory besides the object: most sessions of a server are silent most of the time.
class MessageReader {
 public:
  /// The next message; empty: not received yet. Never blocks. Errors: kConnectionLost when the peer
  /// disconnected, kProtocol for bytes that are no message, kSystem.
  Result<std::optional<ControlMessage>> receive(int socket) noexcept;

 private:
  /// A message grows by as much as this while it is received, so that a header alone does not make
  /// the reader allocate what it announces.
  static constexpr std::size_t kGrowthBytes = 4096;

  std::array<std::byte, FrameHeader::kWireBytes> header_{};
  std::size_t header_got_ = 0;
  std::vector<std::byte> message_;
  std::size_t message_got_ = 0;
};

}  // namespace remora::transport::tcp
