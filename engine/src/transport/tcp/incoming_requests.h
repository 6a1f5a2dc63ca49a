#pragma once

/// The requests of a server's lane as they come in.

#include <cstddef>
#include <cstdint>
#include <sys/types.h>

#include "base/page_buffer.h"
#include "transport/tcp/wire.h"

namespace remora::transport::tcp {

class GrantTable;

/// A buffer of headers and of the bytes of small writes. The bytes of a write are received into the
/// region itself, but for what came together with its header: the lane copies that from the buffer.
/// With payload CRC all of them come through the buffer, which has room for the largest write.
///
/// With the lock of the lane's session.
class IncomingRequests {
 public:
  /// What a receive has brought.
  struct Received {
    bool ended = false;   ///< the connection is of no use
    bool any = false;     ///< bytes have come
    bool filled = false;  ///< all that there was room for has come
  };
  explicit IncomingRequests(bool payload_crc);

  /// One receive: the rest of a write to where it belongs, then what comes behind it.
  Received receive(int socket) noexcept;
  /// Receives bytes that are of no use any more. As recv(2).
  ssize_t discard(int socket) noexcept;

  /// Bytes that are in the buffer, and where the first of them is.
  [[nodiscard]] std::size_t buffered_bytes() const noexcept { return end_ - begin_; }
  [[nodiscard]] const std::byte* next() const noexcept { return buffer_.data() + begin_; }
  /// That many of them have been served.
  void skip(std::size_t length) noexcept { begin_ += length; }
  /// Whether half of what the last receive left there has been served. True once.
  [[nodiscard]] bool passes_half() noexcept {
    if (begin_ < half_) return false;
    half_ = size_;
    return true;
  }
  /// Asks the processor for the memory of the requests that are buffered, for all at once: served
  /// one by one, each would wait for its page and its lines. Headers are not judged here, so
  /// nothing is done with what they say.
  void fetch_ahead(const GrantTable& grants) noexcept;
  /// The lane has begun to serve the request: another one like it may follow.
  void expect_more_like(const RequestHeader& request) noexcept {
    large_writes_ = request.opcode == Opcode::kWrite && request.length_bytes >= kLargeWrite;
  }

  /// The next `left` bytes are of the write, and are received to `memory`.
  void begin_write(const RequestHeader& request, std::byte* memory, std::uint32_t left) noexcept {
    write_ = request;
    target_ = memory;
    target_left_ = left;
  }
  /// A write has begun that has not ended.
  [[nodiscard]] bool in_write() const noexcept { return target_ != nullptr; }
  [[nodiscard]] std::uint32_t write_left_bytes() const noexcept { return target_left_; }
  /// All bytes of the write have come. Returns its header.
  const RequestHeader& end_write() noexcept {
    target_ = nullptr;
    return write_;
  }
  /// Whether bytes of a write may come that reach memory by this key.
  [[nodiscard]] bool writes_by(std::uint32_t key) const noexcept {
    return in_write() && write_.key == key;
  }
  /// No byte of a write is received into the memory of a region any more.
  void drop_write() noexcept {
    target_ = nullptr;
    target_left_ = 0;
  }

 private:
  static constexpr std::size_t kHeader = RequestHeader::kWireBytes;
  /// After a write of so many bytes only a header is received ahead of the next one's bytes, so
  /// that these go straight to where they belong.
  static constexpr std::uint32_t kLargeWrite = 16 * 1024;

  const std::uint32_t straight_from_;  ///< payloads of so many bytes are not copied
  const std::size_t size_;
  remora::detail::PageBuffer buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t half_ = 0;         ///< of what the last receive left there
  std::size_t fetched_ = 0;      ///< memory of the requests before this has been asked for
  bool large_writes_ = false;    ///< the last request was one: receive headers alone
  std::byte* target_ = nullptr;  ///< of a write half received
  std::uint32_t target_left_ = 0;
  RequestHeader write_;
};

}  // namespace remora::transport::tcp
