#pragma once

/// The events that the server of a session sends.

#include <atomic>
#include <cstdint>
#include <optional>

#include <remora/mutex.h>
#include <remora/result.h>

#include "protocol/messages.h"

namespace remora::detail {

class SessionCore;

/// Handles the events of the server (it revokes a grant, drains, or ends the session), and keeps
/// the reasons that it gives. The session owns it. Thread-safe, unless a function says otherwise.
class ServerEvents {
 public:
  explicit ServerEvents(SessionCore& session) noexcept : session_{session} {}
  ServerEvents(const ServerEvents&) = delete;
  ServerEvents& operator=(const ServerEvents&) = delete;

  /// Handles one event of that connection. The control thread calls it.
  void take(const control::Event& event, std::uint64_t connection);
  /// Number of events of current connections so far.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_.load(); }

  /// `reason`; if it says only that the connection broke, the reason that the server has given for
  /// its end.
  [[nodiscard]] Reason ending_or(Reason reason) const noexcept;
  /// For the application: `reason`, or a reason that the server has given since the session was up.
  [[nodiscard]] Reason told_or(Reason reason) const noexcept;
  /// Another connection has followed.
  void begin_connection() noexcept;
  /// The session is up again.
  void session_is_up() noexcept;

 private:
  [[nodiscard]] bool act_on(const control::Event& event, std::uint64_t connection);
  [[nodiscard]] bool is_another_drain(std::uint64_t number) noexcept;
  void on_ending(const control::Event::Ending& ending);

  SessionCore& session_;
  std::atomic<std::uint64_t> count_{0};
  std::optional<std::uint64_t> told_drain_{};  ///< number of the last drain; control thread
  mutable Mutex mutex_;
  /// The reason that the server has given for the end of this connection.
  Reason ending_reason_ REMORA_GUARDED_BY(mutex_) = Reason::kNone;
  /// The reason for the application, until the session is up again.
  Reason told_reason_ REMORA_GUARDED_BY(mutex_) = Reason::kNone;
};

}  // namespace remora::detail
