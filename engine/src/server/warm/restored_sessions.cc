#include "server/warm/restored_sessions.h"

#include <algorithm>
#include <utility>

#include <remora/assert.h>

#include "server/warm/kept_process.h"

namespace remora::detail {

namespace {

/// Whether the process may still write the memory that it has mapped.
bool may_write(const KeptSession& session) noexcept {
  if (session.transport != TransportKind::kShm) return false;
  // Of a process in another PID namespace only the time is known.
  return session.process_id == 0 ||
         state_of_process(session.process_id, session.process_began) != ProcessState::kGone;
}

/// Whether the state of its process can be read.
bool is_known(const KeptSession& session) noexcept {
  return session.transport == TransportKind::kShm && session.process_id != 0;
}

}  // namespace

void RestoredSessions::add(const std::vector<KeptSession>& sessions, Deadline until) {
  const MutexLock lock{mutex_};
  for (const KeptSession& session : sessions)
    sessions_.emplace(session.id, Restored{session, until});
}

std::optional<KeptSession> RestoredSessions::claim(const control::Resume& resume,
                                                   const std::string& client_name, bool proven,
                                                   TransportKind transport) {
  const MutexLock lock{mutex_};
  const auto found = sessions_.find(resume.session_id());
  if (found == sessions_.end()) return std::nullopt;
  const KeptSession& session = found->second.session;
  if (!session.resumable || session.client_name != client_name || session.proven != proven ||
      session.transport != transport)
    return std::nullopt;
  // As in ServerSession::may_be_resumed(): a client that has proven its name sends no secret.
  if (!proven &&
      (session.secret_digest.empty() || session.secret_digest != digest_of(resume.lane_secret())))
    return std::nullopt;
  KeptSession claimed = std::move(found->second.session);
  sessions_.erase(found);
  return claimed;
}

void RestoredSessions::await_return(KeptSession session, std::uint64_t process_id, Deadline until) {
  const MutexLock lock{mutex_};
  const std::uint64_t id = session.id;
  const bool same = session.process_id == 0 || session.process_id == process_id;
  returning_.insert_or_assign(id, Restored{std::move(session), until, same});
}

void RestoredSessions::returned(std::uint64_t session_id) {
  const MutexLock lock{mutex_};
  const auto found = returning_.find(session_id);
  if (found != returning_.end() && found->second.may_return) returning_.erase(found);
}

RestoredSessions::Lapsed RestoredSessions::take_lapsed(Clock::time_point now,
                                                       std::chrono::nanoseconds behind) {
  Lapsed lapsed;
  const MutexLock lock{mutex_};
  for (auto at = sessions_.begin(); at != sessions_.end();) {
    if (at->second.until > now - behind) {
      ++at;
      continue;
    }
    const KeptSession& session = at->second.session;
    if (is_known(session))
      lapsed_mappings_.push_back({.session = session, .noted = true});
    else
      lapsed.ended.push_back(session.id);
    lapsed.sessions.push_back(session);
    at = sessions_.erase(at);
    ++giving_up_;
  }
  for (auto at = returning_.begin(); at != returning_.end();) {
    if (at->second.until > now - behind) {
      ++at;
      continue;
    }
    // Its session continues, and stays noted.
    if (is_known(at->second.session))
      lapsed_mappings_.push_back({.session = at->second.session, .noted = false});
    at = returning_.erase(at);
  }
  std::vector<LapsedMapping> left;
  for (LapsedMapping& mapping : lapsed_mappings_) {
    const KeptSession& session = mapping.session;
    const ProcessState state = state_of_process(session.process_id, session.process_began);
    const bool runs = state == ProcessState::kRunning;
    mapping.runs_since = runs ? std::min(mapping.runs_since, now) : Clock::time_point::max();
    if (state == ProcessState::kStopped || (runs && now - mapping.runs_since < kTimeToNotice))
      left.push_back(std::move(mapping));
    else if (mapping.noted)
      lapsed.ended.push_back(session.id);
  }
  lapsed_mappings_ = std::move(left);
  return lapsed;
}

void RestoredSessions::renew(Deadline until) {
  const MutexLock lock{mutex_};
  for (auto& [id, restored] : sessions_) restored.until = until;
  for (auto& [id, returning] : returning_) returning.until = until;
}

bool RestoredSessions::has(std::uint64_t session_id) const {
  const MutexLock lock{mutex_};
  return sessions_.contains(session_id);
}

std::size_t RestoredSessions::size() const {
  const MutexLock lock{mutex_};
  return sessions_.size();
}

std::size_t RestoredSessions::awaited() const {
  const MutexLock lock{mutex_};
  return sessions_.size() + giving_up_;
}

void RestoredSessions::gave_up() noexcept {
  const MutexLock lock{mutex_};
  REMORA_ASSERT(giving_up_ != 0, "each was taken by take_lapsed()");
  --giving_up_;
}

std::size_t RestoredSessions::mapping_processes() const {
  const MutexLock lock{mutex_};
  std::size_t count = lapsed_mappings_.size();
  for (const auto& [id, restored] : sessions_)
    if (may_write(restored.session)) ++count;
  for (const auto& [id, returning] : returning_)
    if (may_write(returning.session)) ++count;
  return count;
}

}  // namespace remora::detail
