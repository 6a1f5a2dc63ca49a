/// What a session does about grants that go: what the server says unasked, and what is asked of it.

#include <utility>

#include "base/log.h"
#include "client/engine/engine_core.h"
#include "client/queue/queue_core.h"
#include "client/session/session_core.h"

namespace remora::detail {

using control::Request;

namespace {
/// Requests whose answers nobody waits for. A server that answers its client has few of them.
constexpr std::size_t kMaxUnanswered = 1024;

/// As the server numbers it; one that is not known here is `other`.
Reason reason_of(std::uint32_t given, Reason other) noexcept {
  const bool known = given != 0 && given <= static_cast<std::uint32_t>(kReasonLast);
  return known ? static_cast<Reason>(given) : other;
}
}  // namespace

void SessionCore::on_event(const control::Event& event, std::uint64_t connection) {
  if (!is_current(connection)) return;  // it is told again by the one that follows
  events_heard_.fetch_add(1);
  if (heed(event, connection)) return;
  log::warn("session with {}: it says more than it waits for; ending the session", dial_.server);
  lose(Reason::kPeerGone, ClientMetrics::kProtocol, LaneFault::kNone, connection);
}

/// False: more than a server that waits for its client says.
bool SessionCore::heed(const control::Event& event, std::uint64_t connection) {
  {
    const std::lock_guard lock{mutex_};
    if (waiters_.size() >= kMaxUnanswered) return false;
  }
  switch (event.what_case()) {
    case control::Event::kRevoking:
      // It is gone, whatever the reason was.
      return revocations_.revoking(connection, event.id(), event.revoking().grant_id(),
                                   reason_of(event.revoking().reason(), Reason::kRevoked));
    case control::Event::kDraining:
      log::info("session with {}: the server stops in {} ms", dial_.server,
                event.draining().remaining_ms());
      if (!std::exchange(drain_told_, true)) {
        add_news(engine_->options().handlers.on_drain, Reason::kDraining);
        tell_news();
      }
      [[fallthrough]];
    case control::Event::WHAT_NOT_SET: return revocations_.seen(connection, event.id());
    case control::Event::kEnding: on_ending(event.ending());
  }
  return true;
}

/// The server hangs up next.
void SessionCore::on_ending(const control::Event::Ending& ending) {
  control::Failure failure;
  failure.set_code(ending.code());
  failure.set_reason(ending.reason());
  failure.set_subject(ending.subject());
  log::warn("session with {}: the server ends it: {}", dial_.server,
            control::to_error(failure, "session").message());
  const std::lock_guard lock{mutex_};
  told_reason_ = reason_of(ending.reason(), Reason::kNone);
  // That nothing can take effect any more only a server says that has ended the lanes already: as
  // the answer to who comes back.
  const bool settles = told_reason_ == Reason::kLapsed || told_reason_ == Reason::kTooOften ||
                       told_reason_ == Reason::kNewMemory;
  ending_reason_ = settles ? Reason::kNone : told_reason_;
}

/// What the server has said, where nothing better is known than that it went.
Reason SessionCore::told_or(Reason reason) const noexcept {
  if (reason != Reason::kPeerGone && reason != Reason::kLaneBroken && reason != Reason::kLapsed)
    return reason;
  const std::lock_guard lock{mutex_};
  // That it may not come back any more is more than that it was silent.
  if (reason == Reason::kLapsed && told_reason_ == Reason::kSilent) return reason;
  return told_reason_ == Reason::kNone ? reason : told_reason_;
}

SessionCore::Told SessionCore::acknowledge(std::uint64_t connection,
                                           std::uint64_t event_id) noexcept {
  Request seen;
  seen.mutable_event_ack()->set_event_id(event_id);
  return ask_unanswered(std::move(seen), connection);
}

/// Asks and waits for nothing. The answer counts as outstanding until it comes, and is dropped.
/// Such requests have room for one beside those that are waited for.
SessionCore::Told SessionCore::ask_unanswered(Request request, std::uint64_t connection,
                                              std::uint64_t* asked_id) noexcept {
  std::uint64_t id = 0;
  std::shared_ptr<transport::ClientEndpoint> endpoint;
  {
    const std::lock_guard lock{mutex_};
    if (!reachable() || (connection != 0 && connection != connection_)) return Told::kGone;
    if (waiters_.size() > transport::kControlRequestsMax) return Told::kLater;
    id = next_id_++;
    endpoint = endpoint_;
    waiters_.emplace(id, nullptr);
  }
  if (asked_id != nullptr) *asked_id = id;
  if (send(*endpoint, std::move(request), id, Clock::now())) return Told::kSent;
  const std::lock_guard lock{mutex_};
  waiters_.erase(id);
  room_.notify_one();
  return Told::kLater;
}

void SessionCore::close_grant(std::uint64_t grant_id) noexcept {
  {
    const std::lock_guard lock{mutex_};
    if (ended()) return;
    to_close_.push_back(grant_id);
  }
  send_closes();
}

/// As many as there is room for. Each answer makes room for the next; a session that is resumed
/// says which grants it has instead. The lock on sending is held from before a close leaves the
/// list until it is sent: a call that finds the list empty is sent behind it.
void SessionCore::send_closes() noexcept {
  while (true) {
    std::uint64_t id = 0;
    std::uint64_t grant_id = 0;
    std::shared_ptr<transport::ClientEndpoint> endpoint;
    const std::lock_guard sending{send_mutex_};
    {
      const std::lock_guard lock{mutex_};
      if (!connected() || to_close_.empty() || waiters_.size() >= transport::kControlRequestsMax)
        return;
      grant_id = to_close_.back();
      to_close_.pop_back();
      if (to_close_.empty()) room_.notify_all();  // the calls behind them
      id = next_id_++;
      endpoint = endpoint_;
      waiters_.emplace(id, nullptr);
    }
    Request close;
    close.mutable_close()->set_grant_id(grant_id);
    auto bytes = encode(std::move(close), id);
    if (bytes && endpoint->send({.bytes = std::move(*bytes), .descriptors = {}}, Clock::now()))
      continue;
    const std::lock_guard lock{mutex_};
    waiters_.erase(id);
    room_.notify_one();
    to_close_.push_back(grant_id);
    return;
  }
}

Result<SessionCore::Answer> SessionCore::ask_for(const std::string& name, Rights rights,
                                                 Opening how, Deadline deadline) {
  Request request;
  const auto fill = [&](auto& asked) {
    asked.set_name(name);
    asked.set_rights(static_cast<std::uint32_t>(rights));
  };
  if (how == Opening::kOpen) {
    fill(*request.mutable_open());
    return call(std::move(request), "open", deadline);
  }
  if (version_ < 2) return Error{Code::kUnsupported, "fence (an older server)"}.with_subject(name);
  fill(*request.mutable_fence());
  return call(std::move(request), "fence", deadline);
}

}  // namespace remora::detail
