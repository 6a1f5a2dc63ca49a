/// Of a server: its clients, how many of them are there, who was turned away.

#include <string>
#include <utility>

#include "base/log.h"
#include "server/server_core.h"

namespace remora::detail {

namespace {

std::string_view words_for(ServerMetrics::Refusal why) noexcept {
  switch (why) {
    case ServerMetrics::Refusal::kVersion: return "an older protocol version, which has no keys";
    case ServerMetrics::Refusal::kAuthentication: return "it wants keys, and auth is none";
    case ServerMetrics::Refusal::kNoKey: return "it shows no key";
    case ServerMetrics::Refusal::kUnknownClient: return "no client of that name";
    case ServerMetrics::Refusal::kWrongKey: return "its key is not one of the client's";
    default: return "refused";
  }
}

}  // namespace

std::shared_ptr<const ClientRegistry> ServerCore::clients() const {
  const std::lock_guard lock{mutex_};
  return clients_;
}

Status ServerCore::set_clients(const std::vector<config::ClientConfig>& clients) {
  if (!asks_for_keys())
    return Error{Code::kUnsupported, "set_clients: the server was started without 'auth: keys'"};
  config::ServerConfig checked;
  checked.pool.size_bytes = config::kPoolPageBytes;
  checked.auth = config::Auth::kKeys;
  checked.clients = clients;
  if (const config::Diagnostics wrong = config::validate(checked); !wrong.empty())
    return Error{Code::kInvalidArgument, "clients"}.with_subject(wrong[0].key + ": " +
                                                                 wrong[0].message);
  auto registry = std::make_shared<const ClientRegistry>(clients);
  std::vector<Ending> gone;
  {
    const std::lock_guard lock{mutex_};
    clients_ = registry;
    const auto is_gone = [&](const ServerSession& session) {
      return !registry->knows(session.client_name(), session.proven_key());
    };
    for (auto at = sessions_.begin(); at != sessions_.end();) {
      const auto next = std::next(at);
      if (at->second.admitted && is_gone(*at->second.session)) gone.push_back(detach(at));
      at = next;
    }
    for (auto at = kept_.begin(); at != kept_.end();) {
      const auto next = std::next(at);
      if (is_gone(*at->second.session)) drop_kept(at);
      at = next;
    }
    metrics_.sessions_kept(kept_.size());
  }
  end_unknown(std::move(gone));
  return {};
}

Status ServerCore::admit(const ServerSession& session) {
  const std::lock_guard lock{mutex_};
  return admit_locked(session, 0);
}

/// `leaving`: how many go as this one comes.
Status ServerCore::admit_locked(const ServerSession& session, std::size_t leaving) {
  const auto found = sessions_.find(session.id());
  if (found == sessions_.end() || found->second.session.get() != &session)
    return Error{Code::kConnectionLost, "hello"};
  // Those that are taken away by set_clients() are looked for among the admitted, by names that a
  // session which is resumed changes meanwhile: so it is asked once more then.
  if (asks_for_keys() && !clients_->knows(session.client_name(), session.proven_key()))
    return Error{Code::kConnectionRefused, "hello"}.with_reason(Reason::kAuthentication);
  if (found->second.admitted) return {};
  const std::size_t most = config_.limits.sessions_max;
  if (admitted_ - leaving >= most)
    return Error{Code::kLimitExceeded, "sessions"}
        .with_subject("limits.sessions_max")
        .with_limit(admitted_ - leaving + 1, most);
  ++admitted_;
  found->second.admitted = true;
  return {};
}

void ServerCore::note_refused(ServerMetrics::Refusal why, const ServerSession& session,
                              std::string_view client_name) {
  metrics_.session_refused(why);
  if (!refused_lines_.allows(Clock::now())) return;
  log::warn("session {:x}: '{}' over {} ({}) is refused: {}{}", session.id(),
            Error{Code::kInternal}.with_subject(client_name).subject(),
            to_string(session.endpoint().kind()), session.endpoint().peer(), words_for(why),
            refused_lines_.take_left_out());
}

}  // namespace remora::detail
