#pragma once

/// The control thread of a server: accepts connections, receives, answers pings, and notices
/// clients that are late, silent or gone. It never blocks on a request: the worker serves those.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <remora/result.h>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/log_rate_limiter.h"
#include "base/timer_fd.h"
#include "server/handshake_limit.h"
#include "server/server_metrics.h"
#include "server/sessions_to_read.h"
#include "transport/control_message.h"
#include "transport/listener.h"
#include "transport/notice.h"
#include "transport/server_endpoint.h"

namespace remora::detail {

class ServerCore;
class ServerSession;

class ControlThread {
 public:
  explicit ControlThread(ServerCore& server) noexcept : server_{server} {}
  ~ControlThread() { stop(); }
  ControlThread(const ControlThread&) = delete;
  ControlThread& operator=(const ControlThread&) = delete;

  /// Accepts connections from now on. Errors: kSystem, kOutOfMemory.
  Status start();
  /// On return no connection is accepted any more. Not from the control thread.
  void stop_accepting() noexcept;
  /// On return the thread has ended. Idempotent. Not from the control thread.
  void stop() noexcept;
  /// From now on read_notices_again() has no effect.
  void close() noexcept { sessions_to_read_.close(); }

  /// The functions from here on are called by any thread, once start() has returned.

  /// See EventLoop::forget() and EventLoop::drop().
  void forget(EventLoop::Token watch) noexcept { loop_->forget(watch); }
  void drop(EventLoop::Token watch) noexcept { loop_->drop(watch); }
  /// The session has room for notices again.
  void read_notices_again(std::uint64_t session_id) noexcept { sessions_to_read_.add(session_id); }

 private:
  using SessionEnd = ServerMetrics::SessionEnd;
  using Refusal = ServerMetrics::Refusal;

  Status watch_timer(const TimerFd& timer, std::function<void()> tick);
  void on_period() noexcept;
  void look_at_devices() noexcept;
  void restore_devices(std::function<void()> job) noexcept;
  void accept(transport::Listener& listener) noexcept;
  void add(std::unique_ptr<transport::ServerEndpoint> endpoint) noexcept;
  void receive(std::uint64_t id) noexcept;
  [[nodiscard]] bool take_message(const std::shared_ptr<ServerSession>& session,
                                  transport::ControlMessage message) noexcept;
  bool take_notices(ServerSession& session, std::size_t& budget) noexcept;
  [[nodiscard]] bool deliver(ServerSession& session,
                             std::span<const transport::Notice> notices) noexcept;
  void end_for_protocol(ServerSession& session, const Error& why) noexcept;
  void end_late_sessions() noexcept;
  void end_silent_sessions() noexcept;
  void release_lapsed_sessions() noexcept;
  [[nodiscard]] bool behind(Clock::time_point now) noexcept;
  void end_unfinished_handshake(std::uint64_t id, bool displaced) noexcept;

  ServerCore& server_;
  SessionsToRead sessions_to_read_;
  /// Used only by the control thread.
  HandshakeLimit handshake_limit_;
  Clock::time_point more_came_at_{};        ///< a listener had more than one accept() takes
  Clock::time_point silence_checked_at_{};  ///< when it last checked for silent sessions
  Clock::time_point lease_floor_{};  ///< silence before it does not count: the server was stopped
  /// One line a second for each cause that a client can trigger, with a count of the dropped lines.
  log::LogRateLimiter listener_lines_{1};
  log::LogRateLimiter protocol_lines_{1};
  log::LogRateLimiter silent_lines_{1};
  log::LogRateLimiter handshake_lines_{1};
  std::vector<EventLoop::Token> listener_watches_;
  std::unique_ptr<EventLoop> loop_;  ///< destroyed first: its handlers use the others
};

}  // namespace remora::detail
