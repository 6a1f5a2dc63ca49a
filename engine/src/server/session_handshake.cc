#include "server/session_handshake.h"

#include <algorithm>
#include <utility>

#include <remora/assert.h>

#include "base/log.h"
#include "server/server_core.h"
#include "server/server_session.h"
#include "transport/device_session.h"
#include "transport/device_states.h"

namespace remora::detail {

using control::Request;

namespace {

/// A text from a client, made safe for the server's log.
std::string printable(const std::string& text) {
  return std::string{Error{Code::kInternal}.with_subject(text).subject()};
}

Error refused_hello() { return Error{Code::kConnectionRefused, "hello"}; }

}  // namespace

bool SessionHandshake::expects(const Request& request) const noexcept {
  switch (request.body_case()) {
    case Request::BODY_NOT_SET: return false;
    case Request::kHello: return !complete() && !challenge_;
    case Request::kProve: return challenge_.has_value();
    default: return complete();
  }
}

Result<ServerReply> SessionHandshake::hello(const control::Hello& hello, Raw raw) {
  if (hello.version_oldest() > control::kVersionNewest ||
      hello.version_newest() < control::kVersionOldest ||
      hello.version_oldest() > hello.version_newest()) {
    server_.metrics().session_refused(Refusal::kVersion);
    return refused_hello()
        .with_reason(Reason::kVersion)
        .with_limit(hello.version_oldest(), control::kVersionNewest);
  }
  if (hello.has_resume()) wanted_ = hello.resume();
  resumable_.store(hello.comes_back());
  if (hello.lane_keys()) session_.connection().use_lane_keys();
  // A server that must use memory windows does not offer rails: grants on rails are registrations.
  const config::RdmaProtection protection = server_.config().transports.rdma_protection;
  const bool windows = protection == config::RdmaProtection::kWindows ||
                       protection == config::RdmaProtection::kWindowsUnchecked;
  transport::DeviceSession* const device = session_.endpoint().device_session();
  rails_ = hello.rails() && !windows && device != nullptr && device->use_rails();
  if (server_.asks_for_keys()) return challenge(hello, raw);
  if (hello.auth() != control::AUTH_NONE) {
    server_.note_refused(Refusal::kAuthentication, session_, hello.client_name());
    return refused_hello().with_reason(Reason::kAuthentication);
  }
  version_.store(std::min(hello.version_newest(), control::kVersionNewest));
  auto welcome = admit(hello.client_name(), std::nullopt);
  if (!welcome) return welcome.error();
  ServerReply answer;
  *answer.reply.mutable_hello() = std::move(*welcome);
  finish(answer.reply.hello());
  return answer;
}

Result<ServerReply> SessionHandshake::challenge(const control::Hello& hello, Raw raw) {
  if (hello.auth() != control::AUTH_KEYS) {
    server_.note_refused(Refusal::kNoKey, session_, hello.client_name());
    return refused_hello().with_reason(Reason::kAuthentication);
  }
  auto handshake = control::ServerHandshake::start(hello, raw, control::kVersionNewest);
  if (!handshake) {
    const bool version = handshake.error().reason() == Reason::kVersion;
    server_.note_refused(version ? Refusal::kVersion : Refusal::kNoKey, session_,
                         hello.client_name());
    return handshake.error();
  }
  challenge_ = std::move(*handshake);
  ServerReply answer;
  *answer.reply.mutable_challenge() = challenge_->challenge();
  return answer;
}

void SessionHandshake::challenge_sent(Raw raw) noexcept {
  REMORA_ASSERT(challenged(), "a challenge is sent between hello and proof");
  challenge_->challenge_sent(raw);
  waits_since_.store(Clock::now().time_since_epoch().count());
}

Result<ServerReply> SessionHandshake::prove(const control::ProveRequest& request, Raw raw) {
  control::ServerHandshake handshake = std::move(*challenge_);
  challenge_.reset();
  const std::shared_ptr<const ClientRegistry> registry = server_.session_table().clients();
  const KnownClient* const client = registry->find(handshake.client_name());
  const Status proven = handshake.prove(
      request, raw, client == nullptr ? control::ServerHandshake::Keys{} : client->keys);
  if (!proven) {
    server_.note_refused(client == nullptr ? Refusal::kUnknownClient : Refusal::kWrongKey, session_,
                         handshake.client_name());
    return proven.error();
  }
  version_.store(handshake.version());
  const auto welcome = admit(handshake.client_name(), handshake.proven_key());
  if (!welcome) return welcome.error();
  auto admission = handshake.admit(*welcome);
  if (!admission) return admission.error();
  ServerReply answer;
  *answer.reply.mutable_prove() = std::move(*admission);
  finish(*welcome);
  return answer;
}

/// Admits the client, which has sent or proven its name.
Result<control::Welcome> SessionHandshake::admit(
    const std::string& client_name, const std::optional<config::SecretKey>& proven_key) {
  client_name_ = printable(client_name);
  proven_key_ = proven_key;
  if (version() < 2) forbid_resumption();
  transport::DeviceSession* const device = session_.endpoint().device_session();
  if (proven_key_ && device != nullptr) device->join_client(client_name, *proven_key_);
  // Before the answer, so that the old lanes are destroyed when the client reads it.
  const auto resumed = session_.resume();
  // The session that the client wanted to resume is gone, so the client also gives up this one, and
  // does not resume it.
  if (wanted_ && resumed && *resumed == Resumption::kNone) forbid_resumption();
  const Status admitted =
      resumed ? server_.session_table().admit(session_) : Status{resumed.error()};
  if (admitted) return welcome(*resumed);
  if (admitted.error().code() == Code::kLimitExceeded)
    server_.metrics().session_refused(Refusal::kLimit);
  return admitted.error();
}

control::Welcome SessionHandshake::welcome(Resumption how) const {
  const PoolUsage usage = server_.pool_usage();
  control::Welcome welcome;
  welcome.set_version(version());
  welcome.set_server_name("remora-server");
  welcome.set_boot_id(server_.boot_id());
  welcome.set_memory_id(server_.memory_id());
  welcome.set_session_id(session_.id());
  welcome.set_lane_secret(session_.lane_secret());
  welcome.set_pool_bytes(usage.total_bytes);
  welcome.set_pool_free_bytes(usage.free_bytes());
  welcome.set_device(session_.endpoint().device());
  for (const TransportKind kind : {TransportKind::kRdma, TransportKind::kShm, TransportKind::kTcp})
    if (server_.listeners().offers(kind)) welcome.add_transports(static_cast<std::uint32_t>(kind));
  if (version() < 2) return welcome;
  const config::Limits limits = server_.limits();
  const auto milliseconds = [](std::chrono::nanoseconds time) {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
  };
  welcome.set_lease_ms(milliseconds(limits.session_lease));
  welcome.set_keep_ms(milliseconds(limits.session_keep));
  welcome.set_resumed(how == Resumption::kResumed);
  welcome.set_reattach(how != Resumption::kNone && session_.restored());
  welcome.set_administration(true);
  welcome.set_lane_keys(session_.connection().lane_keys() != nullptr);
  if (rails_) add_rails(welcome);
  return welcome;
}

void SessionHandshake::add_rails(control::Welcome& welcome) const {
  // More would not fit in the message, and no session uses more.
  constexpr int kMaxRails = 16;
  for (const transport::DeviceState& device : server_.listeners().device_states()) {
    if (device.use != transport::DeviceUse::kServing) continue;
    for (const std::string& address : device.addresses) {
      if (welcome.rails_size() == kMaxRails) return;
      control::Rail& rail = *welcome.add_rails();
      rail.set_address(address);
      rail.set_device(device.device);
    }
  }
}

void SessionHandshake::finish(const control::Welcome& welcome) {
  REMORA_ASSERT(!complete() && !challenged(), "a handshake is completed once");
  session_.connection().record_activity();
  session_.endpoint().expect_lanes({.session_id = session_.id(), .secret = session_.lane_secret()});
  complete_.store(true);
  session_.note_for_next_process();
  // Queued after the answer. ServerDrain sends the event to sessions whose handshake is complete
  // already.
  if (auto event = server_.draining(); event && version() >= 2)
    session_.events().queue(std::move(*event));
  log::info({"session.opened", "session:x client - transport peer"},
            "session {:x}: {}{} over {} ({}){}", session_.id(), client_name_,
            proven() ? ", by its key," : "", to_string(session_.endpoint().kind()),
            session_.endpoint().peer(),
            welcome.resumed()    ? ", resumed"
            : welcome.reattach() ? ", resumed from the process before"
                                 : "");
}

}  // namespace remora::detail
