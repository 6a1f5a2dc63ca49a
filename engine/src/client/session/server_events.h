#pragma once

/// What the server of a session says unasked.

#include <atomic>
#include <cstdint>

#include <remora/mutex.h>
#include <remora/result.h>

#include "protocol/messages.h"

namespace remora::detail {

class SessionCore;

/// Acts on the events of the server (a grant is taken back, the server drains, it ends the
/// session), and keeps the reasons that it has given. Thread-safe, unless said otherwise.
class ServerEvents {
 public:
  explicit ServerEvents(SessionCore& session) noexcept : session_{session} {}
  ServerEvents(const ServerEvents&) = delete;
  ServerEvents& operator=(const ServerEvents&) = delete;

  /// Acts on one event of that connection. The control thread.
  void take(const control::Event& event, std::uint64_t connection);
  /// How many events of current connections there have been.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_.load(); }

  /// `reason`, or the one that the server has given for the end of this connection where `reason`
  /// says only that it broke.
  [[nodiscard]] Reason ending_or(Reason reason) const noexcept;
  /// The same for the application: `reason`, or what the server has said since the session was up.
  [[nodiscard]] Reason told_or(Reason reason) const noexcept;
  /// Another connection has followed.
  void begin_connection() noexcept;
  /// The session is up again.
  void session_is_up() noexcept;

 private:
  [[nodiscard]] bool act_on(const control::Event& event, std::uint64_t connection);
  void on_ending(const control::Event::Ending& ending);

  SessionCore& session_;
  std::atomic<std::uint64_t> count_{0};
  bool drain_told_ = false;  ///< control thread
  mutable Mutex mutex_;
  /// Why the server ends this connection, as it has said.
  Reason ending_reason_ REMORA_GUARDED_BY(mutex_) = Reason::kNone;
  /// The same for the application: until the session is up again.
  Reason told_reason_ REMORA_GUARDED_BY(mutex_) = Reason::kNone;
};

}  // namespace remora::detail
