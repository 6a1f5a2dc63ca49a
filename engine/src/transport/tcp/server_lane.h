#pragma once

/// The server's end of a lane over tcp: receives requests, accesses memory, sends answers.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "transport/tcp/incoming_requests.h"
#include "transport/tcp/lane_buffers.h"
#include "transport/tcp/outgoing_answers.h"
#include "transport/tcp/served_session.h"
#include "transport/tcp/step_limits.h"
#include "transport/tcp/wire.h"

namespace remora::transport::tcp {

/// A lane as the thread that serves it sees it. Work is done in steps of bounded length, between
/// which the thread serves other lanes. Memory is accessed only within a step, and for transfers
/// that a step has not completed (a write partly received, answers not sent), which abort() drops.
///
/// With payload CRC everything goes through buffers: received, checked, copied; copied, summed,
/// sent. Without it large payloads go straight between the socket and the region: see
/// IncomingRequests and OutgoingAnswers.
///
/// ServedSession calls all functions, and holds the session's lock.
class ServerLane {
 public:
  ServerLane(UniqueFd socket, std::shared_ptr<ServedSession> session, bool payload_crc);

  enum class Progress : std::uint8_t {
    kIdle,     ///< all received requests have been served
    kMore,     ///< more can be done at once
    kBlocked,  ///< the peer has to read first
    kParked,   ///< the application has to handle notices first
    kDead,     ///< disconnected, aborted, or a protocol error
  };
  /// Serves at most kMaxStepRequests requests and about `bytes_max` bytes; with payload CRC, about
  /// kMaxStepBytes. `buffers`: those of the thread.
  Progress step(const GrantTable& grants, LaneBuffers& buffers, ServedCounts& served,
                std::uint64_t bytes_max = kMaxStepBytes) noexcept;

  /// Whether a transfer in progress reaches memory by that key.
  [[nodiscard]] bool touches(std::uint32_t key) const noexcept;
  /// Drops transfers in progress and closes the connection.
  void abort() noexcept;

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  [[nodiscard]] ServedSession& session() const noexcept { return *session_; }
  /// Whether the last step moved any bytes.
  [[nodiscard]] bool moved() const noexcept { return moved_; }
  /// A request was refused: the lane only waits until its client has received the refusal.
  [[nodiscard]] bool refused() const noexcept { return refused_; }

  /// Whether the session has ended the lane. Any thread.
  [[nodiscard]] bool aborted() const noexcept { return aborted_.load(std::memory_order_relaxed); }

  // State of the thread that serves.
  bool active = false;
  bool hung_up = false;

 private:
  /// Why serving the buffered requests stopped.
  enum class Stop : std::uint8_t { kNeedsBytes, kLimit, kNeedsRoom, kEnded };

  Progress go_on(const GrantTable& grants, ServedCounts& served) noexcept;
  Progress flush() noexcept;
  Progress drain() noexcept;
  Stop serve(const GrantTable& grants, ServedCounts& served) noexcept;
  Stop serve_write(const RequestHeader& request, std::byte* memory, ServedCounts& served) noexcept;
  static void count(const RequestHeader& request, ServedCounts& served) noexcept;
  bool serve_read(const RequestHeader& request, const std::byte* memory) noexcept;
  void serve_atomic(const RequestHeader& request, std::byte* memory) noexcept;
  void refuse(const RequestHeader& request, CompletionStatus status) noexcept;

  UniqueFd socket_;
  std::shared_ptr<ServedSession> session_;
  bool payload_crc_;
  bool dead_ = false;
  bool moved_ = false;
  bool refused_ = false;
  std::atomic<bool> aborted_{false};
  bool said_all_ = false;  ///< the refusal and the end of the stream were sent
  bool starved_ = true;    ///< the buffer has no complete request
  std::optional<std::uint32_t> next_sequence_;
  std::uint64_t step_bytes_max_ = kMaxStepBytes;
  IncomingRequests incoming_;
  OutgoingAnswers outgoing_;
};

}  // namespace remora::transport::tcp
