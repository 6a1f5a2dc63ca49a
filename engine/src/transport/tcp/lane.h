#pragma once

/// The client's end of a lane over tcp.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <remora/result.h>

#include "base/fd_set.h"
#include "base/unique_fd.h"
#include "transport/lane.h"
#include "transport/tcp/incoming_answers.h"
#include "transport/tcp/outgoing_requests.h"
#include "transport/tcp/posted_requests.h"

namespace remora::transport::tcp {

/// A chain is sent with one gathered send (OutgoingRequests); poll() sends the bytes that the
/// socket did not take, and receives answers (IncomingAnswers).
class TcpLane final : public Lane {
 public:
  /// `socket`: connected, prepared, introduced and welcomed by the server. Errors: kSystem.
  static Result<std::unique_ptr<Lane>> create(UniqueFd socket, std::uint32_t depth,
                                              bool payload_crc);
  TcpLane(UniqueFd socket, FdSet events, std::uint32_t depth, bool payload_crc);

  [[nodiscard]] const Limits& limits() const noexcept override { return limits_; }
  PostOutcome post(Chain chain, std::uint64_t first_sequence) noexcept override;
  std::size_t poll(std::span<LaneCompletion> completions) noexcept override;
  [[nodiscard]] std::span<const std::uint64_t> atomic_results() const noexcept override {
    return requests_.results();
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
  void enqueue(const WorkRequest& request, std::uint64_t sequence, bool answered) noexcept;
  void enqueue_notice_or_flush(const WorkRequest& request, std::uint64_t sequence) noexcept;

  UniqueFd socket_;
  FdSet events_;
  Limits limits_;
  bool payload_crc_;
  std::uint64_t answer_interval_;
  std::atomic<bool> in_error_{false};
  bool waits_for_room_ = false;  ///< whether events_ watches for room to send
  PostedRequests requests_;
  OutgoingRequests outgoing_;
  IncomingAnswers incoming_;
};

}  // namespace remora::transport::tcp
