#pragma once

/// The requests of a client's lane on their way out.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sys/uio.h>
#include <vector>

#include "transport/tcp/wire.h"

namespace remora::transport::tcp {

/// Headers in a buffer, where the bytes of small writes are copied behind them; those of other
/// writes where they are. What the socket does not take is kept as vectors on the same memory, and
/// goes on with the next flush(). No thread safety.
class OutgoingRequests {
 public:
  /// `requests_max`: in flight at a time.
  explicit OutgoingRequests(std::size_t requests_max);

  [[nodiscard]] bool pending() const noexcept { return first_ < parts_.size(); }
  /// Whether so many bytes of a header and a small write have room in the buffer. Headers alone
  /// always have.
  [[nodiscard]] bool has_room_for_copy(std::size_t length) const noexcept {
    return end_ + length <= kCopiedBytes;
  }
  /// So many bytes of the buffer, behind all that is to be sent: the caller fills them in.
  [[nodiscard]] std::byte* add(std::size_t length) noexcept;
  /// Sends bytes of the caller from where they are, behind all that is to be sent.
  void add_from(const std::byte* bytes, std::size_t length) noexcept;

  /// Sends what the socket takes, unless `ended`. After an error the connection is shut down.
  void flush(int socket, const std::atomic<bool>& ended) noexcept;
  /// Since the lane was opened: bytes that were added, and that have left.
  [[nodiscard]] std::uint64_t queued_bytes() const noexcept { return queued_bytes_; }
  [[nodiscard]] std::uint64_t sent_bytes() const noexcept { return sent_bytes_; }

 private:
  /// Small writes are copied within the first bytes of the buffer, so many; what finds no room is
  /// sent from where it is. Beyond there is room for the headers of all requests that can be in
  /// flight.
  static constexpr std::size_t kCopiedBytes = std::size_t{32} * 1024;

  void compact() noexcept;

  // In the order in which they are sent; empty when everything has been.
  const std::size_t size_;
  const std::unique_ptr<std::byte[]> buffer_;
  std::size_t end_ = 0;
  bool buffer_is_last_ = false;  ///< what is sent last stands in the buffer
  std::vector<iovec> parts_;     ///< not sent yet: from first_ on
  std::size_t first_ = 0;
  std::uint64_t queued_bytes_ = 0;
  std::uint64_t sent_bytes_ = 0;
};

// Once for each request: inline.

inline void OutgoingRequests::add_from(const std::byte* bytes, std::size_t length) noexcept {
  queued_bytes_ += length;
  buffer_is_last_ = false;
  if (parts_.size() == parts_.capacity()) {  // what is left is of requests in flight: it fits
    parts_.erase(parts_.begin(), parts_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  // sendmsg(2) does not write through the vectors it is given.
  parts_.push_back({.iov_base = const_cast<std::byte*>(bytes), .iov_len = length});
}

inline std::byte* OutgoingRequests::add(std::size_t length) noexcept {
  if (end_ + length > size_) compact();
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
