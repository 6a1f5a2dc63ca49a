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

/// Thread-safe, but for the functions that say otherwise.
class SessionEnder {
 public:
  using SessionEnd = ServerMetrics::SessionEnd;
  using Ending = SessionTable::Ending;

  explicit SessionEnder(ServerCore& server) noexcept : server_{server} {}

  /// Ends an attached session. `only`: unless the id is another session's by now. `refused`: also
  /// counts a refusal. False: see SessionTable::take().
  bool end(std::uint64_t id, SessionEnd why, const ServerSession* only = nullptr,
           std::optional<ServerMetrics::Refusal> refused = {}) noexcept;
  /// Ends sessions that have been taken out of the table. All clients are told before any is waited
  /// for.
  void finish(std::span<Ending> endings, SessionEnd why) noexcept;
  /// Ends all attached sessions, since the server stops or hands its memory over. False: there were
  /// none.
  bool end_all(SessionEnd why) noexcept;
  /// Ends the sessions of clients, or keys, that the server does not have any more.
  void end_removed(SessionTable::Removed removed) noexcept;
  /// The client has ended its connection. The lanes end at once; whether the client may come back
  /// is known when all that it has sent is served: its last message may be a goodbye.
  void hung_up(const std::shared_ptr<ServerSession>& session) noexcept;
  /// The worker releases the session.
  void release_later(std::shared_ptr<ServerSession> session) noexcept;

  /// Worker.

  /// Ends a session whose client is admitted, also one that is kept. False: there is none.
  bool end_by_admin(std::uint64_t id) noexcept;
  /// Ends the session unless the outcome is kAnswered.
  void apply_outcome(const ServerSession& session, RequestOutcome outcome) noexcept;
  /// Ends a session whose access to memory could not be taken back, also one that is kept.
  void end_locked_out(const std::shared_ptr<ServerSession>& session) noexcept;
  /// Takes a session whose client has come back out of the server; null: there is none. Its lanes
  /// go with its endpoint, which the caller is to shut down. `by` is admitted before anything is
  /// taken. Errors: those of SessionTable::admit(); kLimitExceeded (limits.resumes_per_minute).
  Result<std::shared_ptr<ServerSession>> claim(const control::Resume& resume,
                                               const ServerSession& by);

 private:
  ServerCore& server_;
  /// One line a second for each cause that a client can bring about; worker.
  log::LogRateLimiter protocol_lines_{1};
  log::LogRateLimiter too_often_lines_{1};
};

}  // namespace remora::detail
