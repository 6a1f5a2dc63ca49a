/// The sessions of a server: which of them end, which are kept for their clients to come back, and
/// who takes up one that is kept.

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "server/server_core.h"
#include "server/server_session.h"

namespace remora::detail {

namespace {

/// Without a look for so long the server was itself stopped: what is queued is served before
/// anybody's silence counts.
constexpr std::chrono::seconds kServerPause{1};

}  // namespace

/// With the lock: the session is none of the server's from here on.
ServerCore::Ending ServerCore::detach(Sessions::iterator at) noexcept {
  Ending ended{.session = std::move(at->second.session), .watch = at->second.watch};
  if (at->second.admitted) --admitted_;
  sessions_.erase(at);
  return ended;
}

/// What is the same whyever they end. They have been detached; all are told before any is waited
/// for.
void ServerCore::finish(std::span<Ending> endings, SessionEnd why) noexcept {
  bool told = false;
  for (Ending& ending : endings) {
    // The control thread may be at what this one's client has said.
    if (loop_ != nullptr && ending.watch != 0) loop_->forget(ending.watch);
    ending.told = ending.session->say_why(why);
    told = told || ending.told;
  }
  const auto time =
      why == SessionEnd::kStopped ? ServerSession::kStoppedWordTime : ServerSession::kLastWordTime;
  const Deadline until = told ? Clock::now() + time : Deadline{};
  for (const Ending& ending : endings)
    if (ending.told) ending.session->await_last_word(until);
  for (const Ending& ending : endings) ending.session->endpoint().shutdown();
  for (Ending& ending : endings) {
    if (ending.session->handshake_complete()) ending.session->announce_the_rest();
    // That takes time: on the worker, after what it still has to serve.
    enqueue([session = std::move(ending.session), kept = ending.kept] {
      if (kept)
        session->settle_alone();
      else
        session->release();
    });
  }
}

/// Sessions of clients, or keys, that are taken away: none of them is kept.
void ServerCore::end_unknown(std::vector<Ending> gone) noexcept {
  for (const Ending& ending : gone) {
    metrics_.session_ended(SessionEnd::kUnknown);
    log::warn(
        "session {:x}: its client, or the key it came with, is no longer one of the server's; "
        "ended",
        ending.session->id());
  }
  finish(gone, SessionEnd::kUnknown);
}

/// `only`: unless the name is another's by now. False: there is no such session.
bool ServerCore::end_session(std::uint64_t id, SessionEnd why, const ServerSession* only,
                             std::optional<ServerMetrics::Refusal> refused) noexcept {
  Ending ended;
  {
    const std::lock_guard lock{mutex_};
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return false;
    if (only != nullptr && found->second.session.get() != only) return false;
    // It has said who it is meanwhile, and may have taken over what somebody has lost.
    if (why == SessionEnd::kNoHello && found->second.admitted) return false;
    ended = detach(found);
    ended.kept = keep(ended.session, why);
  }
  metrics_.session_ended(why);
  if (refused) metrics_.session_refused(*refused);  // before its client can see it
  finish({&ended, 1}, why);
  return true;
}

/// With the lock. Whether a session that ends stays for its client to come back to.
bool ServerCore::keep(const std::shared_ptr<ServerSession>& session, SessionEnd why) {
  const auto time = config_.limits.session_keep;
  const bool may_come_back = (why == SessionEnd::kLost || why == SessionEnd::kLapsed) &&
                             session->handshake_complete() && session->resumable();
  if (!may_come_back || stopped_ || time <= time.zero()) return false;
  // No more than there may be with clients: then the longest alone of the client that has most of
  // them gives way, so that nobody's coming and going costs others theirs.
  if (kept_.size() >= config_.limits.sessions_max) {
    std::unordered_map<std::string_view, std::size_t> counts;
    for (const auto& [id, each] : kept_) ++counts[each.session->client_name()];
    const auto weight = [&](const auto& entry) {
      return std::pair{counts[entry.second.session->client_name()],
                       -entry.second.until.time_since_epoch()};
    };
    drop_kept(std::max_element(kept_.begin(), kept_.end(), [&](const auto& a, const auto& b) {
      return weight(a) < weight(b);
    }));
  }
  session->be_alone();
  kept_.emplace(session->id(), Kept{session, Clock::now() + time});
  metrics_.sessions_kept(kept_.size());
  return true;
}

/// With the lock.
void ServerCore::drop_kept(std::unordered_map<std::uint64_t, Kept>::iterator dropped) {
  jobs_.push_back([gone = std::move(dropped->second.session)] { gone->release(); });
  job_added_.notify_one();
  kept_.erase(dropped);
}

void ServerCore::end_locked_out(const std::shared_ptr<ServerSession>& session) noexcept {
  if (end_session(session->id(), SessionEnd::kKeyKept, session.get())) return;
  const std::lock_guard lock{mutex_};
  const auto kept = kept_.find(session->id());
  if (kept == kept_.end() || kept->second.session != session) return;
  drop_kept(kept);
  metrics_.sessions_kept(kept_.size());
}

Result<std::shared_ptr<ServerSession>> ServerCore::claim(const control::Resume& resume,
                                                         const ServerSession& by) {
  Ending found;
  bool too_often = false;
  {
    const std::lock_guard lock{mutex_};
    const auto kept = kept_.find(resume.session_id());
    const auto attached = sessions_.find(resume.session_id());
    const bool is_kept = kept != kept_.end() && kept->second.session->is_that_of(resume, by);
    const bool is_attached =
        !is_kept && attached != sessions_.end() && attached->second.session->is_that_of(resume, by);
    if (!is_kept && !is_attached) return std::shared_ptr<ServerSession>{};
    // First: one that is refused has taken nothing, and comes again.
    const std::size_t leaving = is_attached && attached->second.admitted ? 1 : 0;
    if (auto admitted = admit_locked(by, leaving); !admitted) return admitted.error();
    if (is_kept) {
      found.session = std::move(kept->second.session);
      kept_.erase(kept);
      metrics_.sessions_kept(kept_.size());
    } else {
      // Its client knows before we do that the lanes are gone.
      found = detach(attached);
      metrics_.session_ended(SessionEnd::kLost);
    }
    too_often = !found.session->may_resume(Clock::now());
  }
  // The control thread may be at what this one's client has said. It never waits for the worker.
  if (found.watch != 0) loop_->forget(found.watch);
  if (!too_often) return found.session;
  if (too_often_lines_.allows(Clock::now()))
    log::warn("session {:x} ({}): more than limits.resumes_per_minute ({}); ended{}",
              resume.session_id(), found.session->endpoint().peer(),
              config_.limits.resumes_per_minute, too_often_lines_.take_left_out());
  found.session->endpoint().shutdown();
  found.session->announce_the_rest();
  found.session->release();
  return Error{Code::kLimitExceeded, "resumptions of a session in a minute"}
      .with_subject("limits.resumes_per_minute")
      .with_limit(std::uint64_t{config_.limits.resumes_per_minute} + 1,
                  config_.limits.resumes_per_minute)
      .with_reason(Reason::kTooOften);
}

void ServerCore::rename(std::uint64_t id, std::uint64_t resumed) {
  metrics_.session_resumed();
  const std::lock_guard lock{mutex_};
  auto session = sessions_.extract(id);
  if (session.empty()) return;  // it has ended meanwhile
  session.key() = resumed;
  sessions_.insert(std::move(session));
}

/// A client that says nothing cannot be told from one that is gone, and what it has open is wanted.
void ServerCore::end_silent_sessions() noexcept {
  const Clock::time_point now = Clock::now();
  const bool paused = now - std::exchange(looked_at_, now) > kServerPause;
  if (paused) lease_floor_ = now;
  std::vector<std::shared_ptr<ServerSession>> silent;
  {
    const std::lock_guard lock{mutex_};
    // Nor could anybody come back meanwhile.
    if (paused)
      for (auto& [id, kept] : kept_) kept.until = now + config_.limits.session_keep;
    for (const auto& [id, attached] : sessions_) {
      const ServerSession& session = *attached.session;
      // Whoever maps memory keeps it, however long he is silent: no lapse takes it back, and that
      // he is gone shows by itself. Nor is whoever waits for an answer asked for more: it counts
      // from the answer, which is looked for first.
      if (!session.handshake_complete() || !session.keeps_alive() || session.maps_grants() ||
          session.waits())
        continue;
      const Clock::time_point heard = std::max(session.heard_at(), lease_floor_);
      if (now - heard > config_.limits.session_lease) silent.push_back(attached.session);
    }
  }
  for (const auto& session : silent) {
    const std::uint64_t id = session->id();
    if (silent_lines_.allows(Clock::now()))
      log::warn("session {:x}: nothing heard for {} ms (limits.session_lease); its lanes end{}", id,
                std::chrono::duration_cast<std::chrono::milliseconds>(config_.limits.session_lease)
                    .count(),
                silent_lines_.take_left_out());
    end_session(id, SessionEnd::kLapsed, session.get());
  }
}

void ServerCore::forget_lapsed_sessions() noexcept {
  std::vector<std::shared_ptr<ServerSession>> gone;
  {
    const std::lock_guard lock{mutex_};
    std::erase_if(kept_, [&](auto& entry) {
      if (entry.second.until > Clock::now()) return false;
      gone.push_back(std::move(entry.second.session));
      return true;
    });
    if (!gone.empty()) metrics_.sessions_kept(kept_.size());
  }
  for (auto& session : gone) {
    log::info("session {:x}: its client has not come back; what it had open is given up",
              session->id());
    enqueue([session = std::move(session)] { session->release(); });
  }
}

void ServerCore::end_late_arrivals() noexcept {
  std::vector<std::uint64_t> late;  // nobody's name changes before he has been heard
  const Clock::time_point now = Clock::now();
  {
    const std::lock_guard lock{mutex_};
    for (const auto& [id, attached] : sessions_)
      if (attached.session->late(now, config_.limits.handshake_timeout)) late.push_back(id);
  }
  for (const std::uint64_t id : late) end_unheard(id, ServerMetrics::Refusal::kNoHello);
}

/// Control thread.
void ServerCore::end_unheard(std::uint64_t id, ServerMetrics::Refusal why) noexcept {
  if (!end_session(id, SessionEnd::kNoHello, nullptr, why)) return;
  if (why == ServerMetrics::Refusal::kPendingHandshake)
    return log::debug(
        "session {:x}: another one takes its place (limits.pending_handshakes_max); ended", id);
  if (!unheard_lines_.allows(Clock::now())) return;
  log::warn("session {:x}: no hello in time; ended{}", id, unheard_lines_.take_left_out());
}

}  // namespace remora::detail
