#include "server/session_ender.h"

#include <utility>

#include "base/log.h"
#include "server/server_core.h"
#include "server/server_session.h"

namespace remora::detail {

void SessionEnder::finish(std::span<Ending> endings, SessionEnd why) noexcept {
  std::vector<ServerSession*> told;
  for (const Ending& ending : endings) {
    // The control thread may be handling a message of this client.
    if (ending.watch != 0) server_.control().forget(ending.watch);
    if (ending.session->send_ending_cause(why)) told.push_back(ending.session.get());
  }
  const auto time = why == SessionEnd::kStopped ? SessionConnection::kStoppedEventTime
                                                : SessionConnection::kLastEventTime;
  const Deadline until = told.empty() ? Deadline{} : Clock::now() + time;
  for (ServerSession* const session : told) session->connection().await_ending_sent(until);
  for (const Ending& ending : endings) ending.session->endpoint().shutdown();
  for (Ending& ending : endings) {
    if (ending.session->handshake_complete()) ending.session->notices().deliver_rest();
    // The worker does this, after the session's queued messages, since it takes time.
    if (!ending.kept)
      release_later(std::move(ending.session));
    else
      server_.enqueue_connecting(
          [session = std::move(ending.session)] { session->settle_detached(); });
  }
}

void SessionEnder::release_later(std::shared_ptr<ServerSession> session) noexcept {
  server_.enqueue([gone = std::move(session)] { gone->release(); });
}

bool SessionEnder::end(std::uint64_t id, SessionEnd why, const ServerSession* only,
                       std::optional<ServerMetrics::Refusal> refused) noexcept {
  auto ending = server_.session_table().take(id, why, only);
  if (!ending) return false;
  if (ending->displaced != nullptr) release_later(std::move(ending->displaced));
  server_.metrics().session_ended(why);
  if (refused) server_.metrics().session_refused(*refused);  // before the client can see its end
  finish({&*ending, 1}, why);
  return true;
}

bool SessionEnder::end_all(SessionEnd why) noexcept {
  std::vector<Ending> left = server_.session_table().take_all();
  for (std::size_t i = 0; i < left.size(); ++i) server_.metrics().session_ended(why);
  finish(left, why);
  return !left.empty();
}

void SessionEnder::end_removed(SessionTable::Removed removed) noexcept {
  for (auto& kept : removed.kept) release_later(std::move(kept));
  for (const Ending& ending : removed.attached) {
    server_.metrics().session_ended(SessionEnd::kUnknownClient);
    log::warn(
        {"session.key_withdrawn", "session:x"},
        "session {:x}: its client, or the key it came with, is no longer one of the server's; "
        "ended",
        ending.session->id());
  }
  finish(removed.attached, SessionEnd::kUnknownClient);
}

void SessionEnder::hung_up(const std::shared_ptr<ServerSession>& session) noexcept {
  if (const auto watch = server_.session_table().take_watch(*session); watch != 0)
    server_.control().drop(watch);
  session->endpoint().shutdown();
  session->notices().deliver_rest();
  server_.enqueue([this, session] {
    session->serve_all_delayed();
    const bool lost = session->handshake_complete() && session->handshake().resumable();
    end(session->id(), lost ? SessionEnd::kLost : SessionEnd::kLeft, session.get());
  });
}

void SessionEnder::apply_outcome(const ServerSession& session, RequestOutcome outcome) noexcept {
  const auto end_it = [&](SessionEnd why) { end(session.id(), why, &session); };
  switch (outcome) {
    case RequestOutcome::kAnswered: return;
    case RequestOutcome::kRefused: return end_it(SessionEnd::kRefused);
    case RequestOutcome::kReplyNotSent:
      // A client that has said goodbye may miss the reply.
      return end_it(session.handshake().resumable() ? SessionEnd::kLost : SessionEnd::kLeft);
    case RequestOutcome::kProtocolViolation:
      server_.metrics().protocol_violation();
      if (protocol_lines_.allows(Clock::now()))
        log::warn({"session.protocol", "session:x peer"},
                  "session {:x} ({}): not the protocol; ended{}", session.id(),
                  session.endpoint().peer(), protocol_lines_.take_left_out());
      return end_it(SessionEnd::kProtocol);
  }
}

bool SessionEnder::end_by_admin(std::uint64_t id) noexcept {
  SessionTable& table = server_.session_table();
  // The client may leave, lose its connection or resume between the look and the end.
  constexpr int kLooksMax = 16;
  for (int look = 0; look < kLooksMax; ++look) {
    const auto attached = table.find(id);
    if (attached != nullptr && attached->handshake_complete()) {
      if (end(id, SessionEnd::kByAdmin, attached.get())) return true;
      continue;
    }
    const auto kept = table.find_kept(id);
    if (kept == nullptr) return false;
    if (!table.take_kept(*kept)) continue;
    release_later(kept);
    return true;
  }
  return false;
}

void SessionEnder::end_locked_out(const std::shared_ptr<ServerSession>& session) noexcept {
  if (end(session->id(), SessionEnd::kKeyKept, session.get())) return;
  if (server_.session_table().take_kept(*session)) release_later(session);
}

Result<std::shared_ptr<ServerSession>> SessionEnder::claim(const control::Resume& resume,
                                                           const ServerSession& by) {
  auto claimed = server_.session_table().claim(resume, by);
  if (!claimed) return claimed.error();
  // The control thread may be handling a message of the client. It never waits for the worker.
  if (claimed->watch != 0) server_.control().forget(claimed->watch);
  if (!claimed->too_often) return std::move(claimed->session);
  ServerSession& found = *claimed->session;
  const std::uint32_t max = server_.limits().resumes_per_minute;
  if (too_often_lines_.allows(Clock::now()))
    log::warn({"session.resumes_too_often", "session:x peer limit"},
              "session {:x} ({}): more than limits.resumes_per_minute ({}); ended{}",
              resume.session_id(), found.endpoint().peer(), max, too_often_lines_.take_left_out());
  found.endpoint().shutdown();
  found.notices().deliver_rest();
  found.release();
  return Error{Code::kLimitExceeded, "resumptions of a session in a minute"}
      .with_subject("limits.resumes_per_minute")
      .with_limit(std::uint64_t{max} + 1, max)
      .with_reason(Reason::kTooOften);
}

}  // namespace remora::detail
