#include "transport/tcp/outgoing_answers.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <type_traits>
#include <utility>

#include <remora/assert.h>

#include "transport/tcp/region_memory_access.h"
#include "transport/tcp/socket.h"

namespace remora::transport::tcp {

namespace {

constexpr std::size_t kHeaders = kMaxStepRequests * AnswerHeader::kWireBytes;

}  // namespace

OutgoingAnswers::OutgoingAnswers(bool payload_crc)
    : payload_crc_{payload_crc},
      straight_from_{payload_crc ? UINT32_MAX : kStraightFrom},
      size_{kHeaders +
            (payload_crc ? kMaxStepBytes + kMaxTransferBytes : kMaxStepRequests * kStraightFrom)} {
  static_assert(sizeof(List) + kHeaders + kMaxStepBytes + kMaxTransferBytes <= LaneBuffers::kBytes);
  static_assert(std::is_trivially_default_constructible_v<List> &&
                std::is_trivially_destructible_v<List>);
}

bool OutgoingAnswers::begin_step(LaneBuffers& buffers) noexcept {
  if (list_ != nullptr) return true;
  buffer_ = buffers.take();
  if (buffer_.data() == nullptr) return false;
  list_ = ::new (static_cast<void*>(buffer_.data())) List;
  return true;
}

void OutgoingAnswers::end_step(LaneBuffers& buffers) noexcept {
  if (pending()) return;
  list_ = nullptr;
  buffers.put_back(std::move(buffer_));
}

bool OutgoingAnswers::overlaps(const std::byte* memory, std::uint32_t length_bytes) const noexcept {
  const auto all = reads();
  return std::any_of(all.begin(), all.end(), [&](const PendingRead& read) {
    return memory < read.memory + read.length_bytes && read.memory < memory + length_bytes;
  });
}

bool OutgoingAnswers::reads_by(std::uint32_t key) const noexcept {
  const auto all = reads();
  return std::any_of(all.begin(), all.end(),
                     [key](const PendingRead& read) { return read.key == key; });
}

OutgoingAnswers::Sent OutgoingAnswers::flush(int socket, std::uint64_t bytes_max,
                                             bool& moved) noexcept {
  REMORA_ASSERT(pending() && count_ <= list_->parts.size(), "only answers of a step are sent");
  iovec* const first = list_->parts.data() + first_;
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  while (first_ + count < count_ && bytes < bytes_max) bytes += first[count++].iov_len;
  iovec& last = first[count - 1];
  const std::size_t beyond = bytes > bytes_max ? bytes - bytes_max : 0;
  last.iov_len -= beyond;
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
