#pragma once

/// One session on the server: its parts, its requests, and its end or resumption.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <remora/result.h>

#include "base/clock.h"
#include "base/token_bucket.h"
#include "protocol/messages.h"
#include "server/admin_requests.h"
#include "server/event_sender.h"
#include "server/grant_set.h"
#include "server/region_requests.h"
#include "server/request_throttle.h"
#include "server/server_metrics.h"
#include "server/server_request.h"
#include "server/session_connection.h"
#include "server/session_handshake.h"
#include "server/session_notices.h"
#include "transport/control_message.h"
#include "transport/server_endpoint.h"

namespace remora::detail {

class ServerCore;

/// The control thread receives messages. The worker calls all functions that do not name another
/// thread. States: handshake; complete; detached, when the client has disconnected and may resume
/// the session. Each state may end in released. A client resumes a session on a new connection,
/// which has a ServerSession of its own that takes over the grants of this one.
class ServerSession : public std::enable_shared_from_this<ServerSession> {
 public:
  ServerSession(ServerCore& server, std::uint64_t id, std::uint64_t lane_secret,
                std::unique_ptr<transport::ServerEndpoint> endpoint);
  ~ServerSession();
  ServerSession(const ServerSession&) = delete;
  ServerSession& operator=(const ServerSession&) = delete;

  /// Changes when this session resumes another one, whose id it takes over. Any thread.
  [[nodiscard]] std::uint64_t id() const noexcept { return id_.load(); }
  [[nodiscard]] std::uint64_t lane_secret() const noexcept { return lane_secret_; }

  [[nodiscard]] SessionConnection& connection() noexcept { return connection_; }
  [[nodiscard]] const SessionConnection& connection() const noexcept { return connection_; }
  [[nodiscard]] transport::ServerEndpoint& endpoint() const noexcept {
    return connection_.endpoint();
  }
  [[nodiscard]] const SessionHandshake& handshake() const noexcept { return handshake_; }
  [[nodiscard]] SessionNotices& notices() noexcept { return notices_; }
  [[nodiscard]] GrantSet& grants() noexcept { return grants_; }
  [[nodiscard]] const GrantSet& grants() const noexcept { return grants_; }
  [[nodiscard]] EventSender& events() noexcept { return events_; }

  /// Any thread.
  [[nodiscard]] bool handshake_complete() const noexcept { return handshake_.complete(); }
  /// Whether its client must send a message within its lease.
  [[nodiscard]] bool keeps_alive() const noexcept { return handshake_.version() >= 2; }
  /// Whether the client waits for an answer.
  [[nodiscard]] bool waits_for_server() const noexcept { return connection_.has_unanswered(); }
  /// Whether the client's next message of the handshake is late. A message that waits for the
  /// worker does not count.
  [[nodiscard]] bool late(Clock::time_point now, std::chrono::nanoseconds patience) const noexcept {
    return !connection_.has_unanswered() && handshake_.late(now, patience);
  }
  /// Whether the client maps the memory of its grants, so that only the client can end its access.
  [[nodiscard]] bool maps_grants() const noexcept { return endpoint().mapping_client() != nullptr; }
  /// Whether the client has disconnected, and the server keeps the session so that the client can
  /// resume it.
  [[nodiscard]] bool detached() const noexcept { return detached_.load(); }
  void detach() noexcept;

  /// The caller holds the lock of the session table.

  /// Whether the client of `other` may resume this session by `resume`.
  [[nodiscard]] bool may_be_resumed(const control::Resume& resume,
                                    const ServerSession& other) const noexcept;
  /// Counts a resumption. False: the client resumes the session more often than `per_minute`.
  [[nodiscard]] bool admits_resumption(Clock::time_point now, std::uint32_t per_minute) noexcept {
    resumptions_.set_per_minute(per_minute);
    return resumptions_.admits(now);
  }

  /// Tells a client that receives events why its session ends, unless the client knows; best
  /// effort. True: the caller should wait for SessionConnection::await_ending_sent(). Does not
  /// block. Any thread, before the endpoint is shut down.
  [[nodiscard]] bool send_ending_cause(ServerMetrics::SessionEnd why) noexcept;

  /// Worker.

  /// Serves one message, or keeps it until limits.requests_per_second allows it.
  RequestOutcome serve(const RequestThrottle::SharedMessage& message, Clock::time_point arrived);
  /// Serves the delayed requests that the limit allows now.
  void serve_delayed();
  /// Serves all delayed requests, since the client sends no more. There are at most as many as
  /// SessionConnection::admit_request() has admitted.
  void serve_all_delayed();
  /// Destroys the lanes of a detached session. From then on revocations do not wait for its client,
  /// unless the client's process may still reach memory that it has mapped.
  void settle_detached();
  /// The same, unless its client has returned to it or it has been released meanwhile.
  void settle_if_detached() {
    if (!released_) settle_detached();
  }
  /// Ends all grants. The session gets no new ones.
  void release() noexcept;
  [[nodiscard]] bool released() const noexcept { return released_; }
  /// No client waits for the replies of this session any more.
  [[nodiscard]] bool over() const noexcept { return released_ || detached_.load(); }

  /// Worker; for RevocationCoordinator.

  /// Tells the client that the server is about to end the grant. False: it cannot tell the client.
  bool begin_revoking(std::uint64_t grant_id, Reason reason);
  /// Ends the grant and invalidates its keys.
  void end_grant(std::uint64_t grant_id, Reason reason, ServerMetrics::TakenBack how) {
    grants_.end_grant(grant_id, reason, how);
  }
  /// Sends an event, in the order of the calls. Clients of version 1 get no events.
  void send_event(control::Event event);

  /// Worker; for the parts of the session.

  /// Sends a reply some time after serve() has returned.
  void reply_later(const ServerRequest& asked, Result<ServerReply> answered);
  /// Resumes the session that the client names in its Hello. Errors: those of
  /// SessionEnder::claim(); kConnectionLost.
  Result<Resumption> resume();
  /// Whether it was a session of the previous process: its client attaches its grants again, after
  /// each resumption.
  [[nodiscard]] bool restored() const noexcept { return restored_; }
  /// Records the session so that the client may return to it in the next process. Called once the
  /// handshake is complete.
  void note_for_next_process();
  /// Ends the session because the device did not invalidate the key of an ended grant, with which
  /// the client can still reach the memory. Its lanes end before another session gets that memory.
  void lock_out(const RegionEntry& region, const Error& why);

 private:
  using Raw = SessionHandshake::Raw;

  RequestOutcome reply(const ServerRequest& asked, Result<ServerReply> answered);
  [[nodiscard]] bool exempt_from_throttle(const control::Request& request) noexcept;
  RequestOutcome serve_now(const control::Envelope& envelope,
                           const transport::ControlMessage& message, Clock::time_point arrived);
  RequestOutcome serve_first_delayed();
  void note_delayed(Clock::time_point now);
  Result<ServerReply> answer(const control::Request& request, Raw raw);
  Result<ServerReply> acknowledge(const control::EventAckRequest& request);
  Result<ServerReply> notify(const control::NotifyRequest& request);
  Status take_over(ServerSession& before);
  Result<Resumption> restore(const control::Resume& wanted);
  void rename(std::uint64_t session_id);
  void reconcile_grants();
  void ask_to_stop_use();
  void note_returned();

  ServerCore& server_;
  std::atomic<std::uint64_t> id_;
  std::uint64_t lane_secret_;  ///< does not change after the handshake
  SessionConnection connection_;
  SessionHandshake handshake_;
  EventSender events_;
  GrantSet grants_;
  SessionNotices notices_;
  RegionRequests region_requests_;
  AdminRequests admin_requests_;
  RequestThrottle throttle_;
  TokenBucket resumptions_;  ///< limits how often the client resumes the session
  std::atomic<bool> detached_{false};
  bool released_ = false;      ///< worker
  bool locked_out_ = false;    ///< worker; see lock_out()
  bool said_goodbye_ = false;  ///< worker
  bool restored_ = false;      ///< worker
  /// Worker. Of a restored session over shm: see RestoredSessions::await_return().
  bool returning_ = false;
  bool asked_to_stop_use_ = false;
};

}  // namespace remora::detail
