#pragma once

/// Counts the notices of one session that the application has not handled yet.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "server/notifier.h"

namespace remora::detail {

class ServerCore;

/// Outlives its session: the notifier keeps it until the last notice is handled. Thread-safe.
class NotificationCredits final : public Notifier::Origin {
 public:
  /// `server` outlives the notifier, which holds the last reference to this object.
  NotificationCredits(ServerCore& server, std::uint64_t session_id) noexcept
      : server_{server}, session_id_{session_id} {}

  /// From now on the session has another id: it has resumed that session.
  void rename(std::uint64_t session_id) noexcept { session_id_.store(session_id); }
  /// Reserves room for up to `max` notices, and returns the number. 0: transport::kMaxNotices are
  /// not handled yet.
  [[nodiscard]] std::size_t reserve(std::size_t max) noexcept;
  /// From now on the control thread reads no notices, until ControlThread::read_notices_again() is
  /// called. False: there is room again.
  [[nodiscard]] bool stop_reading() noexcept;
  /// The session has ended.
  void end() noexcept { ended_.store(true); }
  /// Counts one more notice, whether there is room or not.
  void add() noexcept { unhandled_.fetch_add(1); }
  void notice_handled() noexcept override;
  [[nodiscard]] bool ended() const noexcept override { return ended_.load(); }

 private:
  ServerCore& server_;
  std::atomic<std::uint64_t> session_id_;
  std::atomic<std::size_t> unhandled_{0};
  std::atomic<bool> reading_stopped_{false};
  std::atomic<bool> ended_{false};
};

}  // namespace remora::detail
