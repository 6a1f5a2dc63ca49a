#include "transport/tcp/message_reader.h"

#include <cerrno>
#include <cstring>
#include <span>
#include <sys/socket.h>
#include <utility>

#include "base/crc32c.h"
#include "transport/tcp/socket.h"

namespace remora::transport::tcp {

Result<std::optional<ControlMessage>> MessageReader::take() noexcept {
  if (end_ - begin_ < FrameHeader::kWireBytes) return std::optional<ControlMessage>{};
  const std::span<const std::byte> bytes{buffer_.data() + begin_, end_ - begin_};
  const auto header = FrameHeader::from_wire(bytes.first<FrameHeader::kWireBytes>());
  if (!header) return Error{Code::kProtocol, "control channel"}.with_subject("no message of ours");
  const std::size_t whole = FrameHeader::kWireBytes + header->length_bytes;
  if (bytes.size() < whole) return std::optional<ControlMessage>{};
  const auto message = bytes.subspan(FrameHeader::kWireBytes, header->length_bytes);
  if (crc32c(message) != header->message_crc)
    return Error{Code::kProtocol, "control channel"}.with_subject("a message with a wrong CRC");
  begin_ += whole;
  return std::optional{
      ControlMessage{.bytes = {message.begin(), message.end()}, .descriptors = {}}};
}

Result<std::optional<ControlMessage>> MessageReader::receive(int socket) noexcept {
  while (true) {
    auto message = take();
    if (!message || message->has_value()) return message;
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
    const ssize_t got = ::recv(socket, buffer_.data() + end_, buffer_.size() - end_, MSG_DONTWAIT);
    if (got > 0) {
      end_ += static_cast<std::size_t>(got);
      continue;
    }
    if (got == 0) return connection_error("recv", 0);
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return std::optional<ControlMessage>{};
    return connection_error("recv", errno);
  }
}

}  // namespace remora::transport::tcp
