#pragma once

/// The requests that were posted on a client's lane and not reported yet.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <remora/assert.h>

#include "transport/lane.h"
#include "transport/tcp/wire.h"

namespace remora::transport::tcp {

/// A ring of requests, by sequence, and their progress. Answers come in the order of the requests;
/// an answer also covers the unanswered writes before its request. No thread safety.
class PostedRequests {
 public:
  struct Request {
    std::byte* local = nullptr;
    std::uint32_t length_bytes = 0;
    Opcode opcode = Opcode::kRead;
    bool answered = true;
    std::uint64_t queued_through = 0;  ///< OutgoingRequests::queued_bytes() after its last byte

    [[nodiscard]] std::uint32_t payload_bytes() const noexcept {
      return answer_bytes(opcode, length_bytes);
    }
  };
  /// `depth`: the most requests that are not reported.
  explicit PostedRequests(std::uint32_t depth);

  /// A power of two.
  [[nodiscard]] std::size_t capacity() const noexcept { return ring_.size(); }
  [[nodiscard]] Request& at(std::uint64_t sequence) noexcept { return ring_[sequence & mask_]; }
  /// See Lane::atomic_results().
  [[nodiscard]] std::span<const std::uint64_t> results() const noexcept { return results_; }
  [[nodiscard]] std::byte* result(std::uint64_t sequence) noexcept {
    return reinterpret_cast<std::byte*>(&results_[sequence & mask_]);
  }
  /// The destination of the payload of the request's answer.
  [[nodiscard]] std::byte* destination(std::uint64_t sequence) noexcept {
    const Request& request = at(sequence);
    return request.opcode == Opcode::kRead ? request.local : result(sequence);
  }

  /// Called before at() is filled in for the requests from `first` on.
  void begin_chain(std::uint64_t first) noexcept {
    if (next_sequence_ == 0)
      unreported_ = done_end_ = expected_ = first;
    else
      REMORA_ASSERT_HOT(first == next_sequence_, "requests are posted in their order");
  }
  /// The requests before `end` are filled in.
  void end_chain(std::uint64_t end) noexcept {
    REMORA_ASSERT_HOT(end - unreported_ <= ring_.size(), "the ring has room for each request");
    next_sequence_ = end;
    expected_ = next_answered(expected_);
  }
  /// The sequence after the last one posted.
  [[nodiscard]] std::uint64_t next_sequence() const noexcept { return next_sequence_; }
  /// The sequence after the last one that succeeded.
  [[nodiscard]] std::uint64_t done_end() const noexcept { return done_end_; }
  /// The request whose answer will be complete next.
  [[nodiscard]] std::uint64_t expected() const noexcept { return expected_; }
  /// The first request from `sequence` on that is answered, or next_sequence().
  [[nodiscard]] std::uint64_t next_answered(std::uint64_t sequence) const noexcept {
    while (sequence != next_sequence_ && !ring_[sequence & mask_].answered) ++sequence;
    return sequence;
  }
  /// The requests before `end` have succeeded, and the answer of `expected` is the next one.
  void advance(std::uint64_t end, std::uint64_t expected) noexcept {
    REMORA_ASSERT_HOT(done_end_ <= end && end <= expected && expected <= next_sequence_,
                      "answers come in the order of their requests");
    done_end_ = end;
    expected_ = expected;
  }
  /// The requests before `sequence` have succeeded, `sequence` has failed, and the rest is flushed.
  void fail(std::uint64_t sequence, CompletionStatus status) noexcept;
  /// True after fail(): nothing is received any more.
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  /// As Lane::poll(): reports requests that have succeeded or failed since the last report.
  std::size_t report(std::span<LaneCompletion> completions) noexcept;

 private:
  std::vector<Request> ring_;  // by sequence & mask_, as results_
  const std::uint64_t mask_;
  std::vector<std::uint64_t> results_;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t unreported_ = 0;  ///< the first sequence that is not reported
  std::uint64_t done_end_ = 0;
  std::uint64_t expected_ = 0;
  bool failed_ = false;
  std::uint64_t fault_ = 0;  ///< the request that failed, with fault_status_
  CompletionStatus fault_status_ = CompletionStatus::kFlushed;
};

}  // namespace remora::transport::tcp
