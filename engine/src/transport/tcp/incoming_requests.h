#pragma once

/// The requests that a server's lane receives.

#include <cstddef>
#include <cstdint>
#include <sys/types.h>
#include <utility>

#include <remora/assert.h>

#include "base/page_buffer.h"
#include "transport/tcp/lane_buffers.h"
#include "transport/tcp/wire.h"

namespace remora::transport::tcp {

class GrantTable;

/// A buffer of headers and of the bytes of small writes. The bytes of a write are received into the
/// region itself, except those that came together with its header: the lane copies these from the
/// buffer. With payload CRC all bytes go through the buffer, which has room for the largest write.
/// The buffer is there from begin_step() on, and between steps while it has bytes.
///
/// The caller holds the lock of the lane's session.
class IncomingRequests {
 public:
  /// The outcome of one receive.
  struct Received {
    bool ended = false;   ///< the connection cannot be used any more
    bool any = false;     ///< bytes have come
    bool filled = false;  ///< the bytes filled the whole room
  };
  explicit IncomingRequests(bool payload_crc);

  /// Takes a buffer, unless there is one. False: there is no memory.
  [[nodiscard]] bool begin_step(LaneBuffers& buffers) noexcept {
    if (buffer_.data() == nullptr) buffer_ = buffers.take();
    return buffer_.data() != nullptr;
  }
  /// Puts a buffer back that has no bytes.
  void end_step(LaneBuffers& buffers) noexcept {
    if (begin_ != end_) return;
    begin_ = end_ = fetched_ = 0;
    buffers.put_back(std::move(buffer_));
  }

  /// One receive: the rest of a write into the region, then the bytes behind it into the buffer.
  Received receive(int socket) noexcept;
  /// Receives bytes that are not needed any more. Returns as recv(2).
  ssize_t discard(int socket) noexcept;

  /// The number of bytes in the buffer, and the first of them.
  [[nodiscard]] std::size_t buffered_bytes() const noexcept { return end_ - begin_; }
  [[nodiscard]] const std::byte* next() const noexcept { return buffer_.data() + begin_; }
  /// `length` of them have been served.
  void skip(std::size_t length) noexcept {
    REMORA_ASSERT_HOT(length <= buffered_bytes(), "only bytes that were received are skipped");
    begin_ += length;
  }
  /// Whether half of the bytes that the last receive left in the buffer has been served. True once.
  [[nodiscard]] bool passes_half() noexcept {
    if (begin_ < half_) return false;
    half_ = size_;
    return true;
  }
  /// Prefetches the memory of all buffered requests: served one by one, each would wait for its
  /// page and its cache lines. Headers are not checked here, so their contents are used for nothing
  /// else.
  void fetch_ahead(const GrantTable& grants) noexcept;
  /// The lane has begun to serve the request: the next one may be of the same kind.
  void expect_more_like(const RequestHeader& request) noexcept {
    large_writes_ = request.opcode == Opcode::kWrite && request.length_bytes >= kLargeWrite;
  }

  /// The next `left` bytes belong to the write, and are received into `memory`.
  void begin_write(const RequestHeader& request, std::byte* memory, std::uint32_t left) noexcept {
    REMORA_ASSERT_HOT(!in_write() && left != 0, "a write begins when the one before is complete");
    write_ = request;
    target_ = memory;
    target_left_ = left;
  }
  /// Whether a write has begun that is not complete.
  [[nodiscard]] bool in_write() const noexcept { return target_ != nullptr; }
  [[nodiscard]] std::uint32_t write_left_bytes() const noexcept { return target_left_; }
  /// All bytes of the write have been received. Returns its header.
  const RequestHeader& end_write() noexcept {
    REMORA_ASSERT_HOT(in_write() && target_left_ == 0, "only a write that is complete ends");
    target_ = nullptr;
    return write_;
  }
  /// Whether bytes of a write may still be received into memory that this key reaches.
  [[nodiscard]] bool writes_by(std::uint32_t key) const noexcept {
    return in_write() && write_.key == key;
  }
  /// From now on no byte of a write is received into the memory of a region.
  void drop_write() noexcept {
    target_ = nullptr;
    target_left_ = 0;
  }

 private:
  static constexpr std::size_t kHeader = RequestHeader::kWireBytes;
  /// After a write of this length only one header is received ahead, so that the bytes of the next
  /// write go straight to their destination.
  static constexpr std::uint32_t kLargeWrite = 16 * 1024;

  const std::uint32_t straight_from_;  ///< payloads of this length or more are not copied
  const std::size_t size_;             ///< the bytes of the buffer that are used
  remora::detail::PageBuffer buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t half_ = 0;         ///< half of the bytes that the last receive left
  std::size_t fetched_ = 0;      ///< the memory of the requests before this is prefetched
  bool large_writes_ = false;    ///< the last request was a large write: receive only a header
  std::byte* target_ = nullptr;  ///< of a write that is not complete
  std::uint32_t target_left_ = 0;
  RequestHeader write_;
};

}  // namespace remora::transport::tcp
