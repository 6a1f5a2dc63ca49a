#pragma once

/// The server's end of a lane over tcp: requests in, memory touched, answers out.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "transport/tcp/incoming_requests.h"
#include "transport/tcp/outgoing_answers.h"
#include "transport/tcp/served_session.h"
#include "transport/tcp/wire.h"

namespace remora::transport::tcp {

/// A lane as the thread that serves it sees it. Work is done in steps of bounded length; between
/// them others are served. Memory is reached only within a step or through what a step has left
/// behind (a write half received, answers not sent), which abort() drops.
///
/// With payload CRC everything goes through buffers: received, checked, copied; copied, summed,
/// sent. Without it large payloads go straight between the socket and the region: see
/// IncomingRequests and OutgoingAnswers.
///
/// All functions with the session's lock, by way of ServedSession.
class ServerLane {
 public:
  ServerLane(UniqueFd socket, std::shared_ptr<ServedSession> session, bool payload_crc);

  enum class Progress : std::uint8_t {
    kIdle,     ///< everything there has been served
    kMore,     ///< more can be done at once
    kBlocked,  ///< the peer has to read first
    kParked,   ///< the application has to handle notices first
    kDead,     ///< hung up, aborted, or not the protocol
  };
  /// Serves at most kMaxStepRequests requests and about kMaxStepBytes bytes.
  Progress step(const GrantTable& grants, ServedCounts& served) noexcept;

  /// Whether a transfer under way reaches memory by that key.
  [[nodiscard]] bool touches(std::uint32_t key) const noexcept;
  /// Drops what is under way and hangs up.
  void abort() noexcept;

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  [[nodiscard]] ServedSession& session() const noexcept { return *session_; }
  /// Whether the last step moved any bytes.
  [[nodiscard]] bool moved() const noexcept { return moved_; }
  /// A request was refused: the lane only waits for its client to hear of it.
  [[nodiscard]] bool refused() const noexcept { return refused_; }

  /// The session has ended it. Any thread.
  [[nodiscard]] bool aborted() const noexcept { return aborted_.load(std::memory_order_relaxed); }

  // The serving thread's own marks.
  bool active = false;
  bool hung_up = false;

 private:
  /// Why serving the buffered requests ended.
  enum class Stop : std::uint8_t { kNeedsBytes, kLimit, kNeedsRoom, kEnded };

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
  bool said_all_ = false;  ///< the refusal has left, and the end of the stream behind it
  bool starved_ = true;    ///< the buffered bytes are no whole request
  std::optional<std::uint32_t> next_sequence_;
  IncomingRequests incoming_;
  OutgoingAnswers outgoing_;
};

}  // namespace remora::transport::tcp
