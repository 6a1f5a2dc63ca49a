#pragma once

/// The answers of a client's lane as they come in.

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

/// Answers come in the order of their requests and are as long as these say: headers and what is
/// small are received into a buffer (staged), all that there is with one plain receive. Where
/// something large is among what is awaited, the receive is scattered, and that goes straight to
/// where it belongs.
///
/// With payload CRC all that is received is staged, and is checked there before it is copied.
///
/// No thread safety.
class IncomingAnswers {
 public:
  /// The socket, `requests` and `outgoing` are of the lane, and outlive this.
  IncomingAnswers(int socket, PostedRequests& requests, const OutgoingRequests& outgoing,
                  bool payload_crc);
  IncomingAnswers(const IncomingAnswers&) = delete;
  IncomingAnswers& operator=(const IncomingAnswers&) = delete;

  /// A request was posted whose answer has so many bytes of payload.
  void expect(std::uint32_t payload_bytes) noexcept {
    awaited_bytes_ += kHeader + payload_bytes;
    if (goes_straight(payload_bytes)) ++awaited_straight_;
  }
  /// A chain was posted: where the next receive puts what comes is to be planned anew.
  void plan_anew() noexcept { part_count_ = 0; }
  /// Takes what one receive brings. Where that is not what is expected, the requests fail, and the
  /// connection is shut down for reading. True: anything came. Never blocks.
  bool receive() noexcept;
  /// An answer has begun whose payload goes straight: the rest of it is on its way.
  [[nodiscard]] bool within_payload() const noexcept { return header_taken_; }

 private:
  /// The answers that one receive may bring.
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
  const std::uint32_t straight_from_;   ///< payloads of so many bytes are not staged
  std::uint64_t awaited_bytes_ = 0;     ///< of the answers to what has been posted
  std::uint32_t awaited_straight_ = 0;  ///< of these answers, those whose payload is not staged
  const std::size_t size_;
  const std::unique_ptr<std::byte[]> buffer_;  ///< what a receive does not put straight there
  std::size_t staged_ = 0;                     ///< bytes at its start, of the expected answer
  std::uint32_t straight_got_ = 0;  ///< of the expected answer's payload, whose header was good
  bool header_taken_ = false;
  std::array<iovec, 2 * kMaxAnswers> parts_;
  std::size_t part_count_ = 0;  ///< of parts_; 0: has to be planned anew
};

}  // namespace remora::transport::tcp
