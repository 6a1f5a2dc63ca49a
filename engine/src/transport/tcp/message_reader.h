#pragma once

#include <cstddef>
#include <optional>

#include <remora/result.h>

#include "base/page_buffer.h"
#include "transport/control_message.h"
#include "transport/tcp/wire.h"

namespace remora::transport::tcp {

/// Cuts a control channel's bytes into messages. Keeps at most one in its buffer.
class MessageReader {
 public:
  /// A message if one is there. Never blocks. Errors: kConnectionLost when the peer hung up,
  /// kProtocol for what is no message of ours, kSystem.
  Result<std::optional<ControlMessage>> receive(int socket) noexcept;

 private:
  Result<std::optional<ControlMessage>> take() noexcept;

  /// Short messages touch one page of it.
  remora::detail::PageBuffer buffer_{FrameHeader::kWireBytes + kMaxControlMessageBytes};
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace remora::transport::tcp
