#include "client/session/server_events.h"

#include <utility>

#include "base/log.h"
#include "client/services/engine_services.h"
#include "client/session/session_core.h"

namespace remora::detail {

namespace {

/// Limit of requests for whose answers no caller waits. A server that answers its client has few of
/// them.
constexpr std::size_t kMaxUnanswered = 1024;

/// The reason with the number that the server has sent; `other` if this client does not know it.
Reason reason_of(std::uint32_t given, Reason other) noexcept {
  const bool known = given != 0 && given <= static_cast<std::uint32_t>(kReasonLast);
  return known ? static_cast<Reason>(given) : other;
}

}  // namespace

void ServerEvents::take(const control::Event& event, std::uint64_t connection) {
  // The server sends the event again on the next connection.
  if (!session_.channel().is_current(connection)) return;
  count_.fetch_add(1);
  if (act_on(event, connection)) return;
  log::warn({"session.server_floods", "server"},
            "session with {}: it says more than it waits for; ending the session",
            session_.server_address());
  session_.lose_connection(Reason::kPeerGone, ClientMetrics::kProtocol, LaneFault::kNone,
                           connection);
}

/// The server tells of one drain again on a resumed session. A server before the number tells of
/// its stop alone.
bool ServerEvents::is_another_drain(std::uint64_t number) noexcept {
  const bool another = !told_drain_ || *told_drain_ != number;
  told_drain_ = number;
  return another;
}

/// False: the server sends more events than a server that waits for acknowledgements.
bool ServerEvents::act_on(const control::Event& event, std::uint64_t connection) {
  if (session_.channel().unanswered() >= kMaxUnanswered) return false;
  switch (event.what_case()) {
    case control::Event::kRevoking:
      // The grant is revoked even if this client does not know the reason.
      return session_.revocations().on_revoking(
          connection, event.id(), event.revoking().grant_id(),
          reason_of(event.revoking().reason(), Reason::kRevoked));
    case control::Event::kDraining:
      log::info({"session.server_drains", "server left_ms"},
                "session with {}: the server stops or is drained; it asks this client to leave "
                "within {} ms",
                session_.server_address(), event.draining().remaining_ms());
      if (is_another_drain(event.draining().number())) {
        session_.dispatcher().add(session_.engine().options().handlers.on_drain, Reason::kDraining);
        session_.dispatcher().dispatch();
      }
      [[fallthrough]];
    case control::Event::WHAT_NOT_SET:
      return session_.revocations().acknowledge(connection, event.id());
    case control::Event::kEnding: on_ending(event.ending());
  }
  return true;
}

/// The server ends the session, and closes the connection after this event.
void ServerEvents::on_ending(const control::Event::Ending& ending) {
  control::Failure failure;
  failure.set_code(ending.code());
  failure.set_reason(ending.reason());
  failure.set_subject(ending.subject());
  log::warn({"session.ended_by_server", "server reason"}, "session with {}: the server ends it: {}",
            session_.server_address(), control::to_error(failure, "session").message());
  const MutexLock lock{mutex_};
  told_reason_ = reason_of(ending.reason(), Reason::kNone);
  // In the answer to a hello, these reasons also say that the server has destroyed the old lanes.
  // An event does not say that, so they do not become the reason of the end here.
  const bool settles = told_reason_ == Reason::kLapsed || told_reason_ == Reason::kTooOften ||
                       told_reason_ == Reason::kNewMemory;
  ending_reason_ = settles ? Reason::kNone : told_reason_;
}

Reason ServerEvents::ending_or(Reason reason) const noexcept {
  if (reason != Reason::kPeerGone && reason != Reason::kLaneBroken) return reason;
  const MutexLock lock{mutex_};
  return ending_reason_ == Reason::kNone ? reason : ending_reason_;
}

Reason ServerEvents::told_or(Reason reason) const noexcept {
  if (reason != Reason::kPeerGone && reason != Reason::kLaneBroken && reason != Reason::kLapsed)
    return reason;
  const MutexLock lock{mutex_};
  // kLapsed is more useful to the application: the session was silent, and cannot be resumed.
  if (reason == Reason::kLapsed && told_reason_ == Reason::kSilent) return reason;
  return told_reason_ == Reason::kNone ? reason : told_reason_;
}

void ServerEvents::begin_connection() noexcept {
  const MutexLock lock{mutex_};
  ending_reason_ = Reason::kNone;
}

void ServerEvents::session_is_up() noexcept {
  const MutexLock lock{mutex_};
  told_reason_ = Reason::kNone;
}

}  // namespace remora::detail
