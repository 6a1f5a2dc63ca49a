#pragma once

/// The notices of one session: from its endpoint or its requests to the application's handlers.

#include <cstddef>
#include <cstdint>
#include <memory>

#include <remora/mutex.h>
#include <remora/result.h>

#include "server/grant_names.h"
#include "server/notification_credits.h"
#include "server/session_connection.h"
#include "transport/notice.h"

namespace remora::detail {

class SessionNotices {
 public:
  SessionNotices(ServerCore& server, std::uint64_t session_id, SessionConnection& connection,
                 const GrantNames& names);
  ~SessionNotices() { credits_->end(); }
  SessionNotices(const SessionNotices&) = delete;
  SessionNotices& operator=(const SessionNotices&) = delete;

  /// Reserves room for up to `max` notices, and returns the number; deliver() uses it, or it is
  /// given back. 0: transport::kMaxNotices are not handled yet. Any thread.
  [[nodiscard]] std::size_t reserve(std::size_t max) noexcept { return credits_->reserve(max); }
  void give_back_room(std::size_t count) noexcept {
    for (; count > 0; --count) credits_->notice_handled();
  }
  /// From now on notices stay in the endpoint, until ControlThread::read_notices_again() is called.
  /// False: there is room again. Control thread.
  [[nodiscard]] bool stop_reading() noexcept { return credits_->stop_reading(); }
  /// Passes a notice on to the application, in reserved room. Errors: kProtocol: the client has no
  /// right to send it; the room is given back.
  Status deliver(const transport::Notice& notice);
  /// Delivers the notices that the endpoint has received, once the session is over: the client
  /// counts them as delivered. Any thread; only the first call finds any.
  void deliver_rest() noexcept REMORA_EXCLUDES(rest_mutex_);
  /// From now on the session has another id.
  void rename(std::uint64_t session_id) noexcept { credits_->rename(session_id); }

 private:
  ServerCore& server_;
  SessionConnection& connection_;
  const GrantNames& names_;
  const std::shared_ptr<NotificationCredits> credits_;
  /// One thread at a time is in deliver_rest(). Locked before the locks of GrantNames and Notifier.
  Mutex rest_mutex_;
};

}  // namespace remora::detail
