#pragma once

/// Ends sessions: tells their clients why, ends their connections, and has the worker release them.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <remora/result.h>

#include "base/log_rate_limiter.h"
#include "protocol/messages.h"
#include "server/server_metrics.h"
#include "server/server_request.h"
#include "server/session_table.h"

namespace remora::detail {

class ServerCore;
class ServerSession;

/// Thread-safe, except the functions that say otherwise.
class SessionEnder {
 public:
  using SessionEnd = ServerMetrics::SessionEnd;
  using Ending = SessionTable::Ending;

  explicit SessionEnder(ServerCore& server) noexcept : server_{server} {}

  /// Ends an attached session. `only`: end it only if the id still belongs to this session.
  /// `refused`: also counts a refusal. False: see SessionTable::take().
  bool end(std::uint64_t id, SessionEnd why, const ServerSession* only = nullptr,
           std::optional<ServerMetrics::Refusal> refused = {}) noexcept;
  /// Ends sessions that have been taken out of the table. All clients are told before the server
  /// waits for any of them.
  void finish(std::span<Ending> endings, SessionEnd why) noexcept;
  /// Ends all attached sessions, since the server stops or hands its memory over. False: there were
  /// none.
  bool end_all(SessionEnd why) noexcept;
  /// Ends the sessions of clients, or keys, that the server no longer has.
  void end_removed(SessionTable::Removed removed) noexcept;
  /// The client has ended its connection. The lanes end at once; whether the client may return is
  /// known when all of its messages are served, since the last one may be a goodbye.
  void hung_up(const std::shared_ptr<ServerSession>& session) noexcept;
  /// The worker releases the session.
  void release_later(std::shared_ptr<ServerSession> session) noexcept;

  /// Only the worker calls the functions from here on.

  /// Ends a session whose client is admitted, even if it is kept. False: there is no such session.
  bool end_by_admin(std::uint64_t id) noexcept;
  /// Ends the session unless the outcome is kAnswered.
  void apply_outcome(const ServerSession& session, RequestOutcome outcome) noexcept;
  /// Ends a session whose access to memory could not be revoked, even if it is kept.
  void end_locked_out(const std::shared_ptr<ServerSession>& session) noexcept;
  /// Takes out of the server a session whose client has returned; null: there is none. Its lanes
  /// end with its endpoint, which the caller shuts down. `by` is admitted before the other session
  /// is taken. Errors: those of SessionTable::admit(); kLimitExceeded (limits.resumes_per_minute).
  Result<std::shared_ptr<ServerSession>> claim(const control::Resume& resume,
                                               const ServerSession& by);

 private:
  ServerCore& server_;
  /// One line a second for each cause that a client can trigger; worker.
  log::LogRateLimiter protocol_lines_{1};
  log::LogRateLimiter too_often_lines_{1};
};

}  // namespace remora::detail
