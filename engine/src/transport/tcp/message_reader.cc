#include "transport/tcp/message_reader.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <sys/socket.h>
#include <utility>

#include "base/crc32c.h"
#include "transport/tcp/socket.h"

namespace remora::transport::tcp {

Result<std::optional<ControlMessage>> MessageReader::receive(int socket) noexcept {
  while (true) {
    std::span<std::byte> missing = std::span{header_}.subspan(header_got_);
    std::size_t* received = &header_got_;
    if (missing.empty()) {
      const auto header = FrameHeader::from_wire(header_);
      if (!header)
        return Error{Code::kProtocol, "control channel"}.with_subject("no message of ours");
      if (message_got_ == header->length_bytes) {
        if (crc32c(message_) != header->message_crc)
          return Error{Code::kProtocol, "control channel"}.with_subject(
              "a message with a wrong CRC");
        header_got_ = message_got_ = 0;
        return std::optional{
            ControlMessage{.bytes = std::exchange(message_, {}), .descriptors = {}}};
      }
      if (message_got_ == message_.size())
        message_.resize(std::min<std::size_t>(header->length_bytes, message_got_ + kGrowthBytes));
      missing = std::span{message_}.subspan(message_got_);
      received = &message_got_;
    }
    const ssize_t got = ::recv(socket, missing.data(), missing.size(), MSG_DONTWAIT);
    if (got > 0) {
      *received += static_cast<std::size_t>(got);
      continue;
    }
    if (got == 0) return connection_error("recv", 0);
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return std::optional<ControlMessage>{};
    return connection_error("recv", errno);
  }
}

}  // namespace remora::transport::tcp
