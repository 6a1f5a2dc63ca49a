#pragma once

/// The answers that a server's lane sends.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sys/uio.h>

#include <remora/assert.h>
#include <remora/result.h>

#include "base/crc32c.h"
#include "base/page_buffer.h"
#include "transport/tcp/lane_buffers.h"
#include "transport/tcp/step_limits.h"
#include "transport/tcp/wire.h"

namespace remora::transport::tcp {

/// The answers of one step, which are all sent before the next step begins. The buffer holds the
/// list of what is to be sent, and headers, each with the payload that is copied. The bytes of a
/// large read go straight: they are sent from the region itself. The buffer is there from
/// begin_step() on, and between steps while there are answers to send.
///
/// The caller holds the lock of the lane's session.
class OutgoingAnswers {
 public:
  enum class Sent : std::uint8_t {
    kAll,
    kMore,     ///< more can be sent at once
    kBlocked,  ///< the peer has to read first
    kFailed,   ///< the connection cannot be used any more
  };
  explicit OutgoingAnswers(bool payload_crc);

  /// Takes a buffer, unless there is one. False: there is no memory.
  [[nodiscard]] bool begin_step(LaneBuffers& buffers) noexcept;
  /// Puts the buffer back if there is nothing to send.
  void end_step(LaneBuffers& buffers) noexcept;

  [[nodiscard]] bool pending() const noexcept { return first_ != count_; }
  [[nodiscard]] bool goes_straight(std::uint32_t payload_bytes) const noexcept {
    return payload_bytes >= straight_from_;
  }
  /// Whether this step has room for an answer whose payload is copied.
  [[nodiscard]] bool has_room(std::uint32_t payload_bytes) const noexcept {
    return size_ - end_ >= AnswerHeader::kWireBytes + payload_bytes;
  }
  /// The place of the next answer's payload, unless it goes straight.
  [[nodiscard]] std::byte* next_payload() noexcept {
    return room() + end_ + AnswerHeader::kWireBytes;
  }
  /// Adds an answer. Its payload, if any, is at next_payload().
  void answer(const RequestHeader& request,
              CompletionStatus status = CompletionStatus::kSuccess) noexcept;
  /// Adds the answer to a read whose bytes go straight.
  void answer_read(const RequestHeader& request, const std::byte* memory) noexcept;
  /// Whether bytes of this range go straight and have not been sent yet.
  [[nodiscard]] bool overlaps(const std::byte* memory, std::uint32_t length_bytes) const noexcept;
  /// Whether bytes that this key reaches go straight and have not been sent yet.
  [[nodiscard]] bool reads_by(std::uint32_t key) const noexcept;

  /// One send of at most `bytes_max` of the pending bytes. Sets `moved` if any bytes were sent.
  Sent flush(int socket, std::uint64_t bytes_max, bool& moved) noexcept;
  /// Drops the pending bytes; no memory of a region is read any more.
  void drop() noexcept { first_ = count_ = end_ = read_count_ = 0; }

 private:
  struct PendingRead {
    const std::byte* memory;
    std::uint32_t length_bytes;
    std::uint32_t key;
  };
  /// What is to be sent, at the start of the buffer. The members are not initialised.
  struct List {
    std::array<PendingRead, kMaxStepRequests> reads;  ///< those that go straight
    std::array<iovec, 2 * kMaxStepRequests> parts;    ///< to be sent: those from first_ to count_
  };
  /// The part of the buffer for headers and copied payload.
  [[nodiscard]] std::byte* room() const noexcept { return buffer_.data() + sizeof(List); }
  [[nodiscard]] std::span<const PendingRead> reads() const noexcept {
    return list_ == nullptr ? std::span<const PendingRead>{}
                            : std::span<const PendingRead>{list_->reads.data(), read_count_};
  }
  void add(const std::byte* bytes, std::size_t length) noexcept;

  const bool payload_crc_;
  const std::uint32_t straight_from_;  ///< reads of this length or more go straight
  const std::size_t size_;             ///< of room()
  remora::detail::PageBuffer buffer_;
  List* list_ = nullptr;  ///< in the buffer
  std::size_t end_ = 0;   ///< end of the used part of room()
  std::size_t read_count_ = 0;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

// Inline, since called once for each operation.

inline void OutgoingAnswers::add(const std::byte* bytes, std::size_t length) noexcept {
  if (count_ > 0) {
    iovec& last = list_->parts[count_ - 1];
    if (static_cast<std::byte*>(last.iov_base) + last.iov_len == bytes) {
      last.iov_len += length;
      return;
    }
  }
  // sendmsg(2) does not write through the vectors it is given.
  REMORA_ASSERT_HOT(count_ < list_->parts.size(), "the parts of a step's answers fit");
  list_->parts[count_++] = {.iov_base = const_cast<std::byte*>(bytes), .iov_len = length};
}

inline void OutgoingAnswers::answer(const RequestHeader& request,
                                    CompletionStatus status) noexcept {
  const std::uint32_t payload_bytes =
      status == CompletionStatus::kSuccess ? answer_bytes(request.opcode, request.length_bytes) : 0;
  const std::size_t length =
      AnswerHeader::kWireBytes + (goes_straight(payload_bytes) ? 0 : payload_bytes);
  REMORA_ASSERT_HOT(length <= size_ - end_, "the answers of a step fit");
  std::byte* const at = room() + end_;
  AnswerHeader{.status = status,
               .opcode = request.opcode,
               .sequence = request.sequence,
               .length_bytes = payload_bytes,
               .payload_crc = payload_crc_ ? crc32c({next_payload(), payload_bytes}) : 0}
      .to_wire(std::span<std::byte, AnswerHeader::kWireBytes>{at, AnswerHeader::kWireBytes});
  add(at, length);
  end_ += length;
}

inline void OutgoingAnswers::answer_read(const RequestHeader& request,
                                         const std::byte* memory) noexcept {
  REMORA_ASSERT_HOT(read_count_ < list_->reads.size(), "the reads of a step fit");
  list_->reads[read_count_++] = {memory, request.length_bytes, request.key};
  answer(request);
  add(memory, request.length_bytes);
}

}  // namespace remora::transport::tcp
