#include "server/session_table.h"

#include <algorithm>
#include <fmt/format.h>

#include <remora/assert.h>

#include "server/server_session.h"

namespace remora::detail {

SessionTable::SessionTable(const config::ServerConfig& config, const RunningLimits& limits,
                           const ServerMetrics& metrics)
    : config_{config},
      limits_{limits},
      metrics_{metrics},
      clients_{std::make_shared<ClientRegistry>(config.clients)} {}

SessionTable::~SessionTable() {
  const MutexLock lock{mutex_};
  REMORA_ASSERT(attached_.empty() && kept_.empty() && admitted_ == 0,
                "a server that goes has ended all of its sessions");
  REMORA_ASSERT(living_.load() == 0, "a server outlives its sessions");
}

void SessionTable::attach(Session session, EventLoop::Token watch) {
  const MutexLock lock{mutex_};
  const std::uint64_t id = session->id();
  const auto attached =
      attached_.emplace(id, Attached{.session = std::move(session), .watch = watch});
  REMORA_ASSERT(attached.second, "the id of a session is its own");
}

SessionTable::Session SessionTable::find(std::uint64_t id) const {
  const MutexLock lock{mutex_};
  const auto found = attached_.find(id);
  return found == attached_.end() ? nullptr : found->second.session;
}

EventLoop::Token SessionTable::take_watch(const ServerSession& session) {
  const MutexLock lock{mutex_};
  // If the client has resumed the session already, another session has its id.
  const auto found = attached_.find(session.id());
  if (found == attached_.end() || found->second.session.get() != &session) return 0;
  return std::exchange(found->second.watch, 0);
}

SessionTable::Ending SessionTable::take_locked(Sessions::iterator at) {
  Ending ending;
  ending.session = std::move(at->second.session);
  ending.watch = at->second.watch;
  if (at->second.admitted) {
    REMORA_ASSERT(admitted_ > 0, "the table counts the sessions that are admitted");
    --admitted_;
  }
  attached_.erase(at);
  return ending;
}

std::optional<SessionTable::Ending> SessionTable::take(std::uint64_t id, SessionEnd why,
                                                       const ServerSession* only) {
  const MutexLock lock{mutex_};
  const auto found = attached_.find(id);
  if (found == attached_.end()) return std::nullopt;
  if (only != nullptr && found->second.session.get() != only) return std::nullopt;
  // The client has finished its handshake meanwhile, and may have resumed a session.
  if (why == SessionEnd::kNoHello && found->second.admitted) return std::nullopt;
  Ending ending = take_locked(found);
  if (why == SessionEnd::kLost || why == SessionEnd::kLapsed) keep(ending);
  return ending;
}

/// Keeps a session that ends, if its client may resume it.
void SessionTable::keep(Ending& ending) {
  ServerSession& session = *ending.session;
  const config::Limits limits = limits_.get();
  const auto time = limits.session_keep;
  if (!session.handshake_complete() || !session.handshake().resumable() || !keeps_ ||
      time <= time.zero())
    return;
  // At most as many sessions are kept as may be attached.
  if (kept_.size() >= limits.sessions_max) {
    const auto displaced = next_to_give_way();
    ending.displaced = std::move(displaced->second.session);
    kept_.erase(displaced);
  }
  session.detach();
  const auto kept = kept_.emplace(session.id(), Kept{ending.session, Clock::now() + time});
  REMORA_ASSERT(kept.second, "a session is kept once");
  ending.kept = true;
  show_kept();
}

/// The session that has been kept the longest, of the client that has the most kept sessions: so a
/// client that reconnects often does not displace the sessions of other clients.
SessionTable::KeptSessions::iterator SessionTable::next_to_give_way() {
  std::unordered_map<std::string_view, std::size_t> counts;
  for (const auto& [id, each] : kept_) ++counts[each.session->handshake().client_name()];
  const auto weight = [&](const auto& entry) {
    return std::pair{counts[entry.second.session->handshake().client_name()],
                     -entry.second.until.time_since_epoch()};
  };
  return std::max_element(kept_.begin(), kept_.end(),
                          [&](const auto& a, const auto& b) { return weight(a) < weight(b); });
}

void SessionTable::show_kept() const { metrics_.sessions_kept(kept_.size()); }

std::vector<SessionTable::Ending> SessionTable::take_all() {
  std::vector<Ending> all;
  const MutexLock lock{mutex_};
  all.reserve(attached_.size());
  while (!attached_.empty()) all.push_back(take_locked(attached_.begin()));
  REMORA_ASSERT(admitted_ == 0, "a client is admitted as long as its session is attached");
  return all;
}

SessionTable::Session SessionTable::find_kept(std::uint64_t id) const {
  const MutexLock lock{mutex_};
  const auto found = kept_.find(id);
  return found == kept_.end() ? nullptr : found->second.session;
}

bool SessionTable::take_kept(const ServerSession& session) {
  Session taken;
  const MutexLock lock{mutex_};
  const auto found = kept_.find(session.id());
  if (found == kept_.end() || found->second.session.get() != &session) return false;
  taken = std::move(found->second.session);
  kept_.erase(found);
  show_kept();
  return true;
}

std::vector<SessionTable::Session> SessionTable::take_all_kept() {
  std::vector<Session> all;
  const MutexLock lock{mutex_};
  keeps_ = false;
  all.reserve(kept_.size());
  for (auto& [id, kept] : std::exchange(kept_, {})) all.push_back(std::move(kept.session));
  show_kept();
  return all;
}

std::vector<SessionTable::Session> SessionTable::take_lapsed(Clock::time_point now, bool behind) {
  std::vector<Session> lapsed;
  const MutexLock lock{mutex_};
  std::erase_if(kept_, [&](auto& entry) {
    if (entry.second.until > now) return false;
    if (behind && entry.second.until + kMaxBehind > now) return false;
    lapsed.push_back(std::move(entry.second.session));
    return true;
  });
  if (!lapsed.empty()) show_kept();
  return lapsed;
}

void SessionTable::renew_kept(Clock::time_point now) {
  const Deadline until = now + limits_.get().session_keep;
  const MutexLock lock{mutex_};
  for (auto& [id, kept] : kept_) kept.until = until;
}

void SessionTable::stop_keeping() {
  const MutexLock lock{mutex_};
  keeps_ = false;
}

Result<SessionTable::Claimed> SessionTable::claim(const control::Resume& resume,
                                                  const ServerSession& by) {
  Claimed claimed;
  const MutexLock lock{mutex_};
  const auto kept = kept_.find(resume.session_id());
  const auto attached = attached_.find(resume.session_id());
  const bool is_kept = kept != kept_.end() && kept->second.session->may_be_resumed(resume, by);
  const bool is_attached = !is_kept && attached != attached_.end() &&
                           attached->second.session->may_be_resumed(resume, by);
  if (!is_kept && !is_attached) return claimed;
  // First, so that a refused session has taken no session out of the table: its client tries again.
  const std::size_t leaving = is_attached && attached->second.admitted ? 1 : 0;
  if (auto admitted = admit_locked(by, leaving); !admitted) return admitted.error();
  if (is_kept) {
    claimed.session = std::move(kept->second.session);
    kept_.erase(kept);
    show_kept();
  } else {
    // The client may notice the loss of its lanes before the server does.
    Ending ending = take_locked(attached);
    claimed.session = std::move(ending.session);
    claimed.watch = ending.watch;
    metrics_.session_ended(SessionEnd::kLost);
  }
  claimed.too_often =
      !claimed.session->admits_resumption(Clock::now(), limits_.get().resumes_per_minute);
  return claimed;
}

void SessionTable::rename(std::uint64_t id, std::uint64_t resumed) {
  const MutexLock lock{mutex_};
  auto session = attached_.extract(id);
  if (session.empty()) return;  // the session has ended meanwhile
  session.key() = resumed;
  const auto renamed = attached_.insert(std::move(session));
  REMORA_ASSERT(renamed.inserted, "a session that is resumed has been taken out of the table");
}

Status SessionTable::admit(const ServerSession& session) {
  const MutexLock lock{mutex_};
  return admit_locked(session, 0);
}

/// `leaving`: how many admitted sessions are taken out when this session is admitted.
Status SessionTable::admit_locked(const ServerSession& session, std::size_t leaving) {
  const auto found = attached_.find(session.id());
  if (found == attached_.end() || found->second.session.get() != &session)
    return Error{Code::kConnectionLost, "hello"};
  // set_clients() may have missed this session, since it was not admitted yet, or a resumption was
  // changing its id. So this looks in the registry once more.
  const SessionHandshake& handshake = session.handshake();
  if (config_.auth == config::Auth::kKeys &&
      !clients_->knows(handshake.client_name(), handshake.proven_key()))
    return Error{Code::kConnectionRefused, "hello"}.with_reason(Reason::kAuthentication);
  if (found->second.admitted) return {};
  const std::size_t max = limits_.get().sessions_max;
  if (admitted_ - leaving >= max)
    return Error{Code::kLimitExceeded, "sessions"}
        .with_subject("limits.sessions_max")
        .with_limit(admitted_ - leaving + 1, max);
  ++admitted_;
  found->second.admitted = true;
  return {};
}

std::shared_ptr<const ClientRegistry> SessionTable::clients() const {
  const MutexLock lock{mutex_};
  return clients_;
}

SessionTable::Removed SessionTable::set_clients(std::shared_ptr<const ClientRegistry> clients) {
  Removed removed;
  const auto is_gone = [&](const ServerSession& session) {
    return !clients->knows(session.handshake().client_name(), session.handshake().proven_key());
  };
  const MutexLock lock{mutex_};
  clients_ = clients;
  for (auto at = attached_.begin(); at != attached_.end();) {
    const auto next = std::next(at);
    if (at->second.admitted && is_gone(*at->second.session))
      removed.attached.push_back(take_locked(at));
    at = next;
  }
  std::erase_if(kept_, [&](auto& entry) {
    if (!is_gone(*entry.second.session)) return false;
    removed.kept.push_back(std::move(entry.second.session));
    return true;
  });
  show_kept();
  return removed;
}

std::vector<std::uint64_t> SessionTable::late(Clock::time_point now) const {
  std::vector<std::uint64_t> late;  // the id of a session does not change before its hello
  const auto patience = limits_.get().handshake_timeout;
  const MutexLock lock{mutex_};
  for (const auto& [id, attached] : attached_)
    if (attached.session->late(now, patience)) late.push_back(id);
  return late;
}

std::vector<SessionTable::Session> SessionTable::silent(Clock::time_point now,
                                                        Clock::time_point since) const {
  std::vector<Session> silent;
  const auto lease = limits_.get().session_lease;
  const MutexLock lock{mutex_};
  for (const auto& [id, attached] : attached_) {
    const ServerSession& session = *attached.session;
    // The server cannot unmap a client's memory when a lease ends, and notices the end of a client
    // that maps memory without a lease: such a client has none. A client that waits for an answer
    // need not send messages: its lease counts from the answer.
    if (!session.handshake_complete() || !session.keeps_alive() || session.maps_grants() ||
        session.connection().has_unanswered())
      continue;
    const Clock::time_point heard = std::max(session.connection().last_heard(), since);
    if (now - heard > lease) silent.push_back(attached.session);
  }
  return silent;
}

std::vector<SessionTable::Session> SessionTable::kept() const {
  std::vector<Session> all;
  const MutexLock lock{mutex_};
  all.reserve(kept_.size());
  for (const auto& [id, kept] : kept_) all.push_back(kept.session);
  return all;
}

std::vector<SessionTable::Session> SessionTable::some(std::size_t max) const {
  const MutexLock lock{mutex_};
  std::vector<Session> some;
  some.reserve(std::min(max, attached_.size()));
  for (const auto& [id, attached] : attached_) {
    if (some.size() == max) break;
    some.push_back(attached.session);
  }
  return some;
}

std::vector<std::pair<std::string, SessionTable::Session>> SessionTable::list(
    std::string_view after, std::size_t max) const {
  // Ids are compared as text, since the parameter of the HTTP request may be any text.
  const auto text = [](std::uint64_t id) { return fmt::format("{:016x}", id); };
  std::vector<std::pair<std::string, Session>> found;
  {
    const MutexLock lock{mutex_};
    found.reserve(attached_.size());
    for (const auto& [id, attached] : attached_)
      if (std::string at = text(id); at > after)
        found.emplace_back(std::move(at), attached.session);
  }
  const auto end = found.begin() + static_cast<std::ptrdiff_t>(std::min(max, found.size()));
  std::partial_sort(found.begin(), end, found.end());
  found.erase(end, found.end());
  return found;
}

std::vector<SessionTable::Session> SessionTable::page(std::uint64_t after, std::size_t max) const {
  std::vector<std::pair<std::uint64_t, Session>> found;
  {
    const MutexLock lock{mutex_};
    found.reserve(admitted_ + kept_.size());
    for (const auto& [id, attached] : attached_)
      if (attached.admitted && id > after) found.emplace_back(id, attached.session);
    for (const auto& [id, kept] : kept_)
      if (id > after) found.emplace_back(id, kept.session);
  }
  const std::size_t count = std::min(max, found.size());
  const auto end = found.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(found.begin(), end, found.end(),
                    [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Session> page;
  page.reserve(count);
  for (auto at = found.begin(); at != end; ++at) page.push_back(std::move(at->second));
  return page;
}

std::size_t SessionTable::size() const {
  const MutexLock lock{mutex_};
  return attached_.size();
}

std::size_t SessionTable::admitted_count() const {
  const MutexLock lock{mutex_};
  return admitted_;
}

std::size_t SessionTable::ending_count() const {
  const MutexLock lock{mutex_};
  const std::size_t living = living_.load();
  return living - std::min(living, attached_.size() + kept_.size());
}

}  // namespace remora::detail
