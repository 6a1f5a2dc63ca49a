#pragma once

/// The requests that a client's lane sends.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sys/uio.h>
#include <vector>

#include <remora/assert.h>

#include "transport/tcp/wire.h"

namespace remora::transport::tcp {

/// The buffer holds headers, each followed by the copied bytes of a small write; bytes of other
/// writes are sent from where they are. Bytes that the socket does not take are kept as vectors,
/// and sent by the next flush(). No thread safety.
class OutgoingRequests {
 public:
  /// `requests_max`: the most requests in flight.
  explicit OutgoingRequests(std::size_t requests_max);

  [[nodiscard]] bool pending() const noexcept { return first_ < parts_.size(); }
  /// Whether the buffer has room for a header and the bytes of a small write, `length` bytes
  /// together. It always has room for headers alone.
  [[nodiscard]] bool has_room_for_copy(std::size_t length) const noexcept {
    return end_ + length <= kCopiedBytes;
  }
  /// Adds `length` bytes at the end of the bytes to send; the caller fills them in.
  [[nodiscard]] std::byte* add(std::size_t length) noexcept;
  /// Adds bytes of the caller's memory at the end of the bytes to send, without a copy.
  void add_from(const std::byte* bytes, std::size_t length) noexcept;

  /// Sends as many bytes as the socket takes, unless `ended`. After an error the connection is shut
  /// down.
  void flush(int socket, const std::atomic<bool>& ended) noexcept;
  /// Bytes that were added, and bytes that were sent, since the lane was opened.
  [[nodiscard]] std::uint64_t queued_bytes() const noexcept { return queued_bytes_; }
  [[nodiscard]] std::uint64_t sent_bytes() const noexcept { return sent_bytes_; }

 private:
  /// Small writes are copied into the first bytes of the buffer, up to this number; a write that
  /// does not fit is sent from where it is. The rest of the buffer has room for the headers of all
  /// requests that can be in flight.
  static constexpr std::size_t kCopiedBytes = std::size_t{32} * 1024;

  void compact() noexcept;

  // In the order of sending; empty when everything was sent.
  const std::size_t size_;
  const std::unique_ptr<std::byte[]> buffer_;
  std::size_t end_ = 0;
  bool buffer_is_last_ = false;  ///< the last of the parts is in the buffer
  std::vector<iovec> parts_;     ///< those from first_ on are not sent yet
  std::size_t first_ = 0;
  std::uint64_t queued_bytes_ = 0;
  std::uint64_t sent_bytes_ = 0;
};

// Inline, since called once for each request.

inline void OutgoingRequests::add_from(const std::byte* bytes, std::size_t length) noexcept {
  queued_bytes_ += length;
  buffer_is_last_ = false;
  if (parts_.size() == parts_.capacity()) {  // the parts of requests in flight fit
    parts_.erase(parts_.begin(), parts_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  REMORA_ASSERT_HOT(parts_.size() < parts_.capacity(), "the parts of requests in flight fit");
  // sendmsg(2) does not write through the vectors it is given.
  parts_.push_back({.iov_base = const_cast<std::byte*>(bytes), .iov_len = length});
}

inline std::byte* OutgoingRequests::add(std::size_t length) noexcept {
  if (end_ + length > size_) compact();
  REMORA_ASSERT_HOT(end_ + length <= size_, "the headers of requests in flight fit");
  std::byte* const at = buffer_.get() + end_;
  end_ += length;
  if (buffer_is_last_) {
    parts_.back().iov_len += length;
    queued_bytes_ += length;
  } else {
    add_from(at, length);
    buffer_is_last_ = true;
  }
  return at;
}

}  // namespace remora::transport::tcp
