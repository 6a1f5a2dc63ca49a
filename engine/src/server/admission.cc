/// Of a session: who its client is, and what that client may do.

#include <utility>

#include "base/log.h"
#include "server/server_core.h"
#include "server/server_session.h"

namespace remora::detail {

using control::Request;
using Refusal = ServerMetrics::Refusal;

namespace {

/// A client's text for our logs.
std::string printable(const std::string& text) {
  return std::string{Error{Code::kInternal}.with_subject(text).subject()};
}

Error refused_hello() { return Error{Code::kConnectionRefused, "hello"}; }

}  // namespace

bool ServerSession::expects(const Request& request) const noexcept {
  switch (request.body_case()) {
    case Request::BODY_NOT_SET: return false;
    case Request::kHello: return !handshake_complete() && !handshake_;
    case Request::kProve: return handshake_.has_value();
    default: return handshake_complete();
  }
}

Result<ServerSession::Answer> ServerSession::hello(const control::Hello& hello, Raw raw) {
  if (hello.version_oldest() > control::kVersionNewest ||
      hello.version_newest() < control::kVersionOldest ||
      hello.version_oldest() > hello.version_newest()) {
    server_.metrics().session_refused(Refusal::kVersion);
    return refused_hello()
        .with_reason(Reason::kVersion)
        .with_limit(hello.version_oldest(), control::kVersionNewest);
  }
  if (hello.has_resume()) wanted_ = hello.resume();
  comes_back_.store(hello.comes_back());
  if (hello.lane_keys()) lane_keys_ = endpoint_->use_lane_keys();
  if (server_.asks_for_keys()) return challenge(hello, raw);
  if (hello.auth() != control::AUTH_NONE) {
    server_.note_refused(Refusal::kAuthentication, *this, hello.client_name());
    return refused_hello().with_reason(Reason::kAuthentication);
  }
  version_.store(std::min(hello.version_newest(), control::kVersionNewest));
  auto welcome = let_in(hello.client_name(), std::nullopt);
  if (!welcome) return welcome.error();
  Answer answer;
  *answer.reply.mutable_hello() = std::move(*welcome);
  begin(answer.reply.hello().resumed());
  return answer;
}

Result<ServerSession::Answer> ServerSession::challenge(const control::Hello& hello, Raw raw) {
  if (hello.auth() != control::AUTH_KEYS) {
    server_.note_refused(Refusal::kNoKey, *this, hello.client_name());
    return refused_hello().with_reason(Reason::kAuthentication);
  }
  auto handshake = control::ServerHandshake::start(hello, raw, control::kVersionNewest);
  if (!handshake) {
    const bool version = handshake.error().reason() == Reason::kVersion;
    server_.note_refused(version ? Refusal::kVersion : Refusal::kNoKey, *this, hello.client_name());
    return handshake.error();
  }
  handshake_ = std::move(*handshake);
  Answer answer;
  *answer.reply.mutable_challenge() = handshake_->challenge();
  return answer;
}

Result<ServerSession::Answer> ServerSession::prove(const control::ProveRequest& request, Raw raw) {
  control::ServerHandshake handshake = std::move(*handshake_);
  handshake_.reset();
  const std::shared_ptr<const ClientRegistry> registry = server_.clients();
  const KnownClient* const client = registry->find(handshake.client_name());
  const Status proven = handshake.prove(
      request, raw, client == nullptr ? control::ServerHandshake::Keys{} : client->keys);
  if (!proven) {
    server_.note_refused(client == nullptr ? Refusal::kUnknownClient : Refusal::kWrongKey, *this,
                         handshake.client_name());
    return proven.error();
  }
  version_.store(handshake.version());
  const auto welcome = let_in(handshake.client_name(), handshake.proven_key());
  if (!welcome) return welcome.error();
  auto admission = handshake.admit(*welcome);
  if (!admission) return admission.error();
  Answer answer;
  *answer.reply.mutable_prove() = std::move(*admission);
  begin(welcome->resumed());
  return answer;
}

/// Who the client is, is known: what it is to be told.
Result<control::Welcome> ServerSession::let_in(const std::string& client_name,
                                               const std::optional<config::SecretKey>& proven_key) {
  client_name_ = printable(client_name);
  proven_key_ = proven_key;
  if (version() < 2) comes_back_.store(false);
  // Before anything is said: the old lanes are gone when the client hears of it.
  const auto resumed = resume();
  // What it wanted is gone, so its client gives this one up too: nobody would come back to it.
  if (wanted_ && resumed && !*resumed) comes_back_.store(false);
  const Status admitted = resumed ? server_.admit(*this) : Status{resumed.error()};
  if (admitted) return welcome(*resumed);
  if (admitted.error().code() == Code::kLimitExceeded)
    server_.metrics().session_refused(Refusal::kLimit);
  return admitted.error();
}

control::Welcome ServerSession::welcome(bool resumed) const {
  const PoolUsage usage = server_.pool_usage();
  control::Welcome welcome;
  welcome.set_version(version());
  welcome.set_server_name("remora-server");
  welcome.set_boot_id(server_.boot_id());
  welcome.set_memory_id(server_.memory_id());
  welcome.set_session_id(id_);
  welcome.set_lane_secret(lane_secret_);
  welcome.set_pool_bytes(usage.total_bytes);
  welcome.set_pool_free_bytes(usage.free_bytes());
  welcome.set_device(endpoint_->device());
  for (const TransportKind kind : {TransportKind::kRdma, TransportKind::kShm, TransportKind::kTcp})
    if (server_.offers(kind)) welcome.add_transports(static_cast<std::uint32_t>(kind));
  if (version() < 2) return welcome;
  const config::Limits& limits = server_.config().limits;
  const auto milliseconds = [](std::chrono::nanoseconds time) {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
  };
  welcome.set_lease_ms(milliseconds(limits.session_lease));
  welcome.set_keep_ms(milliseconds(limits.session_keep));
  welcome.set_resumed(resumed);
  welcome.set_lane_keys(lane_keys_ != nullptr);
  return welcome;
}

void ServerSession::begin(bool resumed) {
  hear();
  endpoint_->expect_lanes({.session_id = id_, .secret = lane_secret_});
  handshake_complete_.store(true);
  // Behind the answer; whoever was there before hears of it by tell_all().
  if (auto event = server_.draining(); event && version() >= 2)
    events_.push_back(std::move(*event));
  log::info("session {:x}: {}{} over {} ({}){}", id(), client_name_,
            proven() ? ", by its key," : "", to_string(endpoint_->kind()), endpoint_->peer(),
            resumed ? ", resumed" : "");
}

Result<ServerSession::Asker> ServerSession::asker() const {
  if (!server_.asks_for_keys()) return Asker{};
  Asker asker{.registry = server_.clients(), .client = nullptr};
  asker.client = asker.registry->find(client_name_);
  // Its session ends with its key, but what had come by then is still with the worker.
  if (!asker.registry->knows(client_name_, proven_key_))
    return Error{Code::kConnectionRefused, "request"}.with_reason(Reason::kAuthentication);
  return asker;
}

Result<std::shared_ptr<RegionEntry>> ServerSession::find_permitted(const std::string& name,
                                                                   Permission& permission) const {
  const auto who = asker();
  if (!who) return who.error();
  auto found = server_.catalog().find(name);
  if (!found) return found;
  permission = permission_of((*found)->fixed_info(), who->client);
  // To others there is no such region.
  if (!permission.any()) return Error{Code::kUnknownRegion, "region"}.with_subject(name);
  return found;
}

/// `more_bytes`: of the pool. The worker alone creates for clients, so nothing is added between
/// this and that.
Status ServerSession::check_quota(const KnownClient& client, std::uint64_t more_bytes) const {
  return server_.catalog().check_quota(client.name, client.quota_bytes, more_bytes);
}

Result<ServerSession::Answer> ServerSession::usage() {
  const auto who = asker();
  if (!who) return who.error();
  const PoolUsage pool = server_.pool_usage();
  Answer answer;
  control::UsageReply& usage = *answer.reply.mutable_usage();
  if (who->client != nullptr) {
    usage.set_client_bytes(server_.catalog().owned_bytes(who->client->name));
    usage.set_client_quota_bytes(who->client->quota_bytes);
  }
  usage.set_pool_bytes(pool.total_bytes);
  usage.set_pool_used_bytes(pool.used_bytes);
  usage.set_pool_freeing_bytes(pool.freeing_bytes);
  usage.set_sessions(server_.session_count());
  usage.set_grants(open_grants());
  return answer;
}

}  // namespace remora::detail
