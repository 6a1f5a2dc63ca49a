#pragma once

/// The client's end of a lane over tcp.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <sys/uio.h>
#include <vector>

#include <remora/result.h>

#include "base/fd_set.h"
#include "base/unique_fd.h"
#include "transport/lane.h"
#include "transport/tcp/wire.h"

namespace remora::transport::tcp {

/// A chain is one gathered send: headers from a buffer, where the bytes of small writes are copied
/// behind them, those of others from where they are. What the socket does not take is kept as
/// vectors on the same memory and goes on in poll(). Answers come in the order of their requests
/// and are as long as these say: headers and what is small are received into a buffer, all that
/// there is with one plain receive. Where something large is among what is awaited, the receive is
/// scattered, and that goes straight to where it belongs.
///
/// With payload CRC all that is received goes through the buffer and is checked there before it is
/// copied.
class TcpLane final : public Lane {
 public:
  /// `socket`: connected, prepared, introduced and welcomed. Errors: kSystem.
  static Result<std::unique_ptr<Lane>> create(UniqueFd socket, std::uint32_t depth,
                                              bool payload_crc);
  TcpLane(UniqueFd socket, FdSet events, std::uint32_t depth, bool payload_crc);

  [[nodiscard]] const Limits& limits() const noexcept override { return limits_; }
  PostOutcome post(Chain chain, std::uint64_t first_sequence) noexcept override;
  std::size_t poll(std::span<LaneCompletion> completions) noexcept override;
  [[nodiscard]] std::span<const std::uint64_t> atomic_results() const noexcept override {
    return results_;
  }
  Status arm() noexcept override;
  void drain_events() noexcept override {}  // level-triggered
  [[nodiscard]] int event_fd() const noexcept override { return events_.get(); }
  void move_to_error() noexcept override;
  void close() noexcept override;
  [[nodiscard]] std::uint32_t completion_capacity() const noexcept override {
    return limits_.depth;
  }

 private:
  /// A request that was posted and has not been reported.
  struct Posted {
    std::byte* local = nullptr;
    std::uint32_t length_bytes = 0;
    Opcode opcode = Opcode::kRead;
    bool answered = true;
    std::uint64_t queued_through = 0;  ///< its last byte's place in all that was ever queued
  };
  /// The answers that one receive may bring.
  static constexpr std::size_t kMaxAnswers = 64;
  static constexpr std::size_t kHeader = AnswerHeader::kWireBytes;

  void enqueue(const WorkRequest& request, std::uint64_t sequence, bool answered) noexcept;
  [[nodiscard]] std::byte* add_outgoing(std::size_t length) noexcept;
  void add_output(const std::byte* bytes, std::size_t length) noexcept;
  void compact_outgoing() noexcept;
  void flush() noexcept;

  [[nodiscard]] Posted& posted(std::uint64_t sequence) noexcept { return ring_[sequence & mask_]; }
  [[nodiscard]] bool goes_straight(std::uint32_t payload_bytes) const noexcept {
    return payload_bytes >= straight_from_;
  }
  [[nodiscard]] std::byte* destination(std::uint64_t sequence) noexcept;
  [[nodiscard]] std::byte* result(std::uint64_t sequence) noexcept;
  [[nodiscard]] std::uint64_t next_answered(std::uint64_t sequence) const noexcept;
  void plan() noexcept;
  ssize_t receive_staged() noexcept;
  ssize_t receive_scattered() noexcept;
  bool receive() noexcept;
  std::size_t take_good(const std::byte* staged, std::size_t length) noexcept;
  void take(std::size_t received) noexcept;
  bool take_staged(const std::byte* staged, std::size_t whole) noexcept;
  bool check(const AnswerHeader& answer) noexcept;
  void fail(std::uint64_t sequence, CompletionStatus status) noexcept;
  std::size_t report(std::span<LaneCompletion> completions) noexcept;

  UniqueFd socket_;
  FdSet events_;
  Limits limits_;
  bool payload_crc_;
  std::uint32_t straight_from_;  ///< payloads of so many bytes are not staged
  std::uint64_t answer_interval_;
  std::atomic<bool> in_error_{false};
  bool waits_for_room_ = false;  ///< what events_ looks for

  std::vector<Posted> ring_;  // by sequence & mask_
  std::uint64_t mask_;
  std::vector<std::uint64_t> results_;
  std::uint64_t next_sequence_ = 0;  ///< sequence after the last one posted
  std::uint64_t unreported_ = 0;     ///< first sequence that poll() has not reported
  std::uint64_t done_end_ = 0;       ///< sequence after the last one that succeeded
  std::uint64_t expected_ = 0;       ///< request whose answer is the next to come whole
  bool failed_ = false;              ///< nothing is received any more
  std::uint64_t fault_ = 0;          ///< the request that failed by itself, with fault_status_
  CompletionStatus fault_status_ = CompletionStatus::kFlushed;

  // Headers and copied bytes, in the order they are sent; empty when everything has been.
  std::size_t outgoing_size_;
  std::unique_ptr<std::byte[]> outgoing_;
  std::size_t outgoing_end_ = 0;
  bool outgoing_last_ = false;  ///< what is sent last stands there
  std::vector<iovec> output_;   // not sent yet: from output_first_ on
  std::size_t output_first_ = 0;
  std::uint64_t queued_bytes_ = 0;  // ever
  std::uint64_t sent_bytes_ = 0;    // ever

  std::uint64_t awaited_bytes_ = 0;     ///< of the answers to what has been posted
  std::uint32_t awaited_straight_ = 0;  ///< of these answers, those whose payload is not staged
  std::size_t staging_size_;
  std::unique_ptr<std::byte[]> staging_;  // what a receive does not put straight where it belongs
  std::size_t staged_ = 0;                ///< bytes at its start, of the expected answer
  std::uint32_t straight_got_ = 0;  ///< of the expected answer's payload, whose header was good
  bool header_taken_ = false;
  std::array<iovec, 2 * kMaxAnswers> input_;
  std::size_t input_count_ = 0;  ///< of input_; 0: has to be planned anew
};

}  // namespace remora::transport::tcp
