#pragma once

/// The list of sessions, the end of a session, and a drain: what AdminRequests answers to a client
/// that administers the server, and Server to the application that embeds it.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <remora/engine/administration.h>
#include <remora/result.h>

namespace remora::detail {

class ServerCore;
class ServerSession;

class Administration {
 public:
  /// `asking`: the session of the client that asks; null: the application asks.
  explicit Administration(ServerCore& server, const ServerSession* asking = nullptr) noexcept
      : server_{server}, asking_{asking} {}

  // Only the worker calls these three.
  /// At most `max` sessions after the id `after`, in the order of their ids: those whose clients
  /// are admitted, and those that wait for their clients.
  [[nodiscard]] std::vector<SessionInfo> page(std::uint64_t after, std::size_t max) const;
  [[nodiscard]] DrainState drain_state() const;
  /// Ends a session. If the result is ok, `then` runs when no request of the session reaches memory
  /// any more. Errors: kInvalidArgument (the session that asks); kNotFound.
  Status end_session(std::uint64_t id, std::function<void()> then) const;

  // For a thread of the application: each does its work on the worker, and waits for that. Errors
  // of all: kClosed (the server has stopped).
  [[nodiscard]] Result<std::vector<SessionInfo>> await_sessions() const;
  Status await_end(std::uint64_t id) const;
  enum class DrainStep : std::uint8_t { kNone, kBegin, kEnd };
  Result<DrainState> await_drain(DrainStep step) const;

 private:
  [[nodiscard]] SessionInfo describe(const ServerSession& session) const;

  ServerCore& server_;
  const ServerSession* const asking_;
};

}  // namespace remora::detail
