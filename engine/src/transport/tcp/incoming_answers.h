#pragma once

/// The answers that a client's lane receives.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sys/types.h>
#include <sys/uio.h>

#include "transport/tcp/outgoing_requests.h"
#include "transport/tcp/posted_requests.h"
#include "transport/tcp/wire.h"

namespace remora::transport::tcp {

/// Answers come in the order of their requests, and their lengths follow from the requests. Headers
/// and small payloads are received into a buffer (staged), with one plain receive. If a large
/// payload is among the expected answers, the receive is scattered, and that payload goes straight
/// to its destination.
///
/// With payload CRC all bytes are staged, and checked before they are copied.
///
/// No thread safety.
class IncomingAnswers {
 public:
  /// The socket, `requests` and `outgoing` belong to the lane, and outlive this object.
  IncomingAnswers(int socket, PostedRequests& requests, const OutgoingRequests& outgoing,
                  bool payload_crc);
  IncomingAnswers(const IncomingAnswers&) = delete;
  IncomingAnswers& operator=(const IncomingAnswers&) = delete;

  /// A request was posted whose answer has this many bytes of payload.
  void expect(std::uint32_t payload_bytes) noexcept {
    awaited_bytes_ += kHeader + payload_bytes;
    if (goes_straight(payload_bytes)) ++awaited_straight_;
  }
  /// A chain was posted: the vectors of the next receive must be planned again.
  void plan_anew() noexcept { part_count_ = 0; }
  /// Handles the bytes of one receive. If they are not the expected answers, the requests fail, and
  /// the connection is shut down for reading. True: bytes have come. Never blocks.
  bool receive() noexcept;
  /// The header of an answer was received whose payload goes straight: the rest of it will follow.
  [[nodiscard]] bool within_payload() const noexcept { return header_taken_; }

 private:
  /// The most answers that one receive may bring.
  static constexpr std::size_t kMaxAnswers = 64;
  static constexpr std::size_t kHeader = AnswerHeader::kWireBytes;

  [[nodiscard]] bool goes_straight(std::uint32_t payload_bytes) const noexcept {
    return payload_bytes >= straight_from_;
  }
  void plan() noexcept;
  ssize_t receive_staged() noexcept;
  ssize_t receive_scattered() noexcept;
  std::size_t take_good(const std::byte* staged, std::size_t length) noexcept;
  void take(std::size_t received) noexcept;
  bool take_staged(const std::byte* staged, std::size_t whole) noexcept;
  bool check(const AnswerHeader& answer) noexcept;
  void fail(std::uint64_t sequence, CompletionStatus status) noexcept;

  const int socket_;
  PostedRequests& requests_;
  const OutgoingRequests& outgoing_;
  const bool payload_crc_;
  const std::uint32_t straight_from_;   ///< payloads of this length or more are not staged
  std::uint64_t awaited_bytes_ = 0;     ///< of the answers to posted requests
  std::uint32_t awaited_straight_ = 0;  ///< of these answers, those that are not staged
  const std::size_t size_;
  const std::unique_ptr<std::byte[]> buffer_;  ///< bytes that do not go straight
  std::size_t staged_ = 0;                     ///< bytes at its start, of the expected answer
  std::uint32_t straight_got_ = 0;  ///< bytes of the expected payload, received after a good header
  bool header_taken_ = false;
  std::array<iovec, 2 * kMaxAnswers> parts_;
  std::size_t part_count_ = 0;  ///< of parts_; 0: must be planned again
};

}  // namespace remora::transport::tcp
