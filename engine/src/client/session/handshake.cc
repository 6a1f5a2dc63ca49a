/// Of a session on the client's side: who it is, and who the server is.

#include <algorithm>
#include <string>
#include <utility>

#include "client/engine/engine_core.h"
#include "client/session/session_core.h"
#include "protocol/authentication.h"

namespace remora::detail {

using control::Request;

namespace {
/// Of a server that says less or more: no server of ours does.
constexpr std::uint64_t kLeaseLeastMs = 100;
constexpr std::uint64_t kLeaseMostMs = 3'600'000;
/// Room for everything else that a Hello says.
constexpr std::size_t kMaxHelloBytes = 1024;
}  // namespace

Status SessionCore::hello(Deadline deadline) {
  const EngineOptions& options = engine_->options();
  Request request;
  control::Hello& hello = *request.mutable_hello();
  hello.set_version_oldest(control::kVersionOldest);
  hello.set_version_newest(control::kVersionNewest);
  hello.set_auth(control::AUTH_NONE);
  hello.set_client_name(options.client_name);
  hello.set_comes_back(options.reconnect_for > options.reconnect_for.zero());
  hello.set_lane_keys(kind() == TransportKind::kRdma);
  if (ticket_.session_id != 0) {
    hello.mutable_resume()->set_session_id(ticket_.session_id);
    // Whoever answers here has proven nothing yet.
    if (!options.key) hello.mutable_resume()->set_lane_secret(ticket_.secret);
    {
      // What is not held any more is not said: that is how the server hears of it.
      const std::lock_guard lock{mutex_};
      to_close_.clear();
    }
    for (const std::uint64_t grant_id :
         revocations_.come_back(transport::kControlMessageBytesMax - kMaxHelloBytes))
      hello.mutable_resume()->add_grants(grant_id);
  }
  control::Welcome welcome;
  if (options.key) {
    auto proven = hello_with_key(std::move(request), *options.key, deadline);
    if (!proven) {
      // What only a Welcome may say nobody is believed before.
      const Reason said = proven.error().reason();
      const bool unproven = said == Reason::kNewMemory || said == Reason::kLapsed;
      return unproven ? proven.error().with_reason(Reason::kNone) : not_let_in(proven.error());
    }
    welcome = std::move(*proven);
  } else {
    auto answer = call(std::move(request), "hello", deadline);
    if (!answer) return not_let_in(answer.error());
    if (!answer->reply.has_hello())
      return Error{Code::kProtocol, "hello"}.with_subject("challenge without a key");
    welcome = std::move(*answer->reply.mutable_hello());
  }
  if (welcome.version() < control::kVersionOldest || welcome.version() > control::kVersionNewest)
    return Error{Code::kProtocol, "hello"}.with_reason(Reason::kVersion);
  resumed_ = welcome.resumed();
  // What the session is does not change, only how it is reached.
  if (ticket_.session_id != 0) {
    if (auto status = take_up({.session_id = welcome.session_id(), .secret = welcome.lane_secret()},
                              welcome.memory_id());
        !status)
      return status;
    return agree_on_keys(welcome.lane_keys(), true);
  }
  version_ = welcome.version();
  lease_ = std::chrono::milliseconds{
      welcome.lease_ms() == 0 ? 0 : std::clamp(welcome.lease_ms(), kLeaseLeastMs, kLeaseMostMs)};
  resumable_ = version_ >= 2 && welcome.keep_ms() != 0 &&
               options.reconnect_for > options.reconnect_for.zero();
  server_ = {.name = welcome.server_name(),
             .boot_id = welcome.boot_id(),
             .memory_id = welcome.memory_id(),
             .pool_bytes = welcome.pool_bytes(),
             .pool_free_bytes = welcome.pool_free_bytes(),
             .device = welcome.device(),
             .transports = {}};
  for (const std::uint32_t kind : welcome.transports())
    if (kind == static_cast<std::uint32_t>(TransportKind::kRdma) ||
        kind == static_cast<std::uint32_t>(TransportKind::kShm) ||
        kind == static_cast<std::uint32_t>(TransportKind::kTcp))
      server_.transports.push_back(static_cast<TransportKind>(kind));
  ticket_ = {.session_id = welcome.session_id(), .secret = welcome.lane_secret()};
  return agree_on_keys(welcome.lane_keys(), false);
}

/// The server does not say what was wrong. Here it is known who asked, and where.
Error SessionCore::not_let_in(const Error& error) const {
  if (error.reason() != Reason::kAuthentication || !error.subject().empty()) return error;
  const EngineOptions& options = engine_->options();
  const std::string who =
      options.key ? "as '" + options.client_name + "' with a key" : std::string{"without a key"};
  return error.with_subject(dial_.server + " over " + std::string{to_string(kind())} + ", " + who);
}

/// Errors: those of control::ClientHandshake and call().
Result<control::Welcome> SessionCore::hello_with_key(Request request, const config::SecretKey& key,
                                                     Deadline deadline) {
  auto handshake = control::ClientHandshake::start(key);
  if (!handshake) return handshake.error();
  handshake->write(*request.mutable_hello());
  std::vector<std::byte> raw;
  const auto challenged = call(std::move(request), "hello", deadline, &raw);
  if (!challenged) return challenged.error();
  handshake->hello_sent(raw);
  auto proof = handshake->challenged(challenged->reply, challenged->raw);
  if (!proof) return proof.error();
  Request prove;
  *prove.mutable_prove() = std::move(*proof);
  const auto admitted = call(std::move(prove), "hello", deadline, &raw);
  if (!admitted) return admitted.error();
  handshake->proof_sent(raw);
  return handshake->admitted(admitted->reply.prove());
}

}  // namespace remora::detail
