#include "transport/tcp/outgoing_answers.h"

#include <algorithm>
#include <cerrno>

#include <remora/assert.h>

#include "transport/tcp/region_memory_access.h"
#include "transport/tcp/socket.h"

namespace remora::transport::tcp {

OutgoingAnswers::OutgoingAnswers(bool payload_crc)
    : payload_crc_{payload_crc},
      straight_from_{payload_crc ? UINT32_MAX : kStraightFrom},
      size_{kMaxStepRequests * AnswerHeader::kWireBytes +
            (payload_crc ? kMaxStepBytes + kMaxTransferBytes : kMaxStepRequests * kStraightFrom)},
      buffer_{size_} {}

bool OutgoingAnswers::overlaps(const std::byte* memory, std::uint32_t length_bytes) const noexcept {
  return std::any_of(reads_.begin(), reads_.begin() + static_cast<std::ptrdiff_t>(read_count_),
                     [&](const PendingRead& read) {
                       return memory < read.memory + read.length_bytes &&
                              read.memory < memory + length_bytes;
                     });
}

bool OutgoingAnswers::reads_by(std::uint32_t key) const noexcept {
  return std::any_of(reads_.begin(), reads_.begin() + static_cast<std::ptrdiff_t>(read_count_),
                     [key](const PendingRead& read) { return read.key == key; });
}

OutgoingAnswers::Sent OutgoingAnswers::flush(int socket, bool& moved) noexcept {
  REMORA_ASSERT(pending() && count_ <= parts_.size(), "only answers of a step are sent");
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  while (first_ + count < count_ && bytes < kMaxStepBytes)
    bytes += parts_[first_ + count++].iov_len;
  iovec& last = parts_[first_ + count - 1];
  const std::size_t beyond = bytes > kMaxStepBytes ? bytes - kMaxStepBytes : 0;
  last.iov_len -= beyond;
  iovec* const first = parts_.data() + first_;
  const ssize_t sent = region_memory::send(socket, first, count);
  last.iov_len += beyond;
  if (sent < 0) {
    if (errno == EAGAIN) return Sent::kBlocked;
    return errno == EINTR ? Sent::kMore : Sent::kFailed;
  }
  moved = true;
  first_ += advance(first, static_cast<std::size_t>(sent));
  if (pending())
    return static_cast<std::uint64_t>(sent) == bytes - beyond ? Sent::kMore : Sent::kBlocked;
  drop();
  return Sent::kAll;
}

}  // namespace remora::transport::tcp
