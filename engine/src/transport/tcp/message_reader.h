#pragma once

#include <cstddef>
#include <optional>

#include <remora/result.h>

#include "base/page_buffer.h"
#include "transport/control_message.h"
#include "transport/tcp/wire.h"

namespace remora::transport::tcp {

/// Splits the bytes of a control channel into messages. Keeps at most one message in its buffer.
class MessageReader {
 public:
  /// The next message; empty: not received yet. Never blocks. Errors: kConnectionLost when the peer
  /// disconnected, kProtocol for bytes that are no message, kSystem.
  Result<std::optional<ControlMessage>> receive(int socket) noexcept;

 private:
  Result<std::optional<ControlMessage>> take() noexcept;

  /// Short messages touch one page of the buffer.
  remora::detail::PageBuffer buffer_{FrameHeader::kWireBytes + kMaxControlMessageBytes};
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace remora::transport::tcp
