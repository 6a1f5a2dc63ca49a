#include "client/session/handshake.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "client/services/engine_services.h"
#include "client/session/session_core.h"
#include "protocol/client_handshake.h"
#include "transport/connection_rails.h"

namespace remora::detail {

using control::Request;

namespace {
/// A lease outside of these bounds is moved to the nearer bound. No Remora server sends such a
/// lease.
constexpr std::uint64_t kLeaseLeastMs = 100;
constexpr std::uint64_t kLeaseMostMs = 3'600'000;
/// Room for the other fields of a Hello.
constexpr std::size_t kMaxHelloBytes = 1024;
}  // namespace

Request Handshake::hello_request() {
  const EngineOptions& options = session_.engine().options();
  Request request;
  control::Hello& hello = *request.mutable_hello();
  hello.set_version_oldest(control::kVersionOldest);
  hello.set_version_newest(control::kVersionNewest);
  hello.set_auth(control::AUTH_NONE);
  hello.set_client_name(options.client_name);
  hello.set_comes_back(options.reconnect_for > options.reconnect_for.zero());
  hello.set_lane_keys(session_.kind() == TransportKind::kRdma);
  hello.set_rails(session_.channel().endpoint()->rails() != nullptr);
  if (ticket_.session_id == 0) return request;
  hello.mutable_resume()->set_session_id(ticket_.session_id);
  hello.mutable_resume()->set_memory_id(server_.memory_id);
  // With a key the client sends no secret here, since this server has not proven its identity yet.
  if (!options.key) hello.mutable_resume()->set_lane_secret(ticket_.secret);
  // The server closes the grants that are not in this list, so no close requests are needed.
  session_.channel().forget_closes();
  for (const std::uint64_t grant_id :
       session_.revocations().grants_to_resume(transport::kMaxControlMessageBytes - kMaxHelloBytes))
    hello.mutable_resume()->add_grants(grant_id);
  return request;
}

Status Handshake::say_hello(Deadline deadline) {
  const auto welcome = request_welcome(deadline);
  if (!welcome) return welcome.error();
  if (welcome->version() < control::kVersionOldest || welcome->version() > control::kVersionNewest)
    return Error{Code::kProtocol, "hello"}.with_reason(Reason::kVersion);
  // A later hello resumes the session that the first one has begun.
  const bool again = ticket_.session_id != 0;
  if (!again)
    begin_session(*welcome);
  else if (auto status = resume_session(*welcome); !status)
    return status;
  administration_ = welcome->administration();
  const auto endpoint = session_.channel().endpoint();
  if (transport::ConnectionRails* const rails = endpoint->rails()) {
    std::vector<transport::RailAddress> told;
    for (const control::Rail& rail : welcome->rails())
      told.push_back({.address = rail.address(), .device = rail.device()});
    rails->learn_rails(welcome->device(), told);
  }
  return session_.grant_keys().agree(welcome->lane_keys(), again);
}

Result<control::Welcome> Handshake::request_welcome(Deadline deadline) {
  const EngineOptions& options = session_.engine().options();
  Request request = hello_request();
  if (options.key) {
    auto proven = prove(std::move(request), *options.key, deadline);
    if (proven) return proven;
    // These reasons end the session, so they count only in the Welcome of a server that has proven
    // its identity.
    const Reason said = proven.error().reason();
    const bool unproven = said == Reason::kNewMemory || said == Reason::kLapsed;
    return unproven ? proven.error().with_reason(Reason::kNone)
                    : name_refused_client(proven.error());
  }
  auto answer = session_.call(std::move(request), "hello", deadline);
  if (!answer) return name_refused_client(answer.error());
  if (!answer->reply.has_hello())
    return Error{Code::kProtocol, "hello"}.with_subject("challenge without a key");
  return std::move(*answer->reply.mutable_hello());
}

void Handshake::begin_session(const control::Welcome& welcome) {
  const EngineOptions& options = session_.engine().options();
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
}

/// Errors: kStaleRegion; kConnectionLost with kLapsed.
Status Handshake::resume_session(const control::Welcome& welcome) {
  if (welcome.memory_id() != server_.memory_id)
    return Error{Code::kStaleRegion, "hello"}.with_reason(Reason::kNewMemory);
  // A new process with the same memory has the session, but not its grants.
  const bool goes_on = welcome.resumed() || welcome.reattach();
  if (!goes_on || welcome.session_id() != ticket_.session_id)
    return Error{Code::kConnectionLost, "hello"}.with_reason(Reason::kLapsed);
  reattaches_ = welcome.reattach();
  ticket_.secret = welcome.lane_secret();
  return {};
}

/// The server does not say which credential it refused, so this adds the client's name and the
/// server's address.
Error Handshake::name_refused_client(const Error& error) const {
  if (error.reason() != Reason::kAuthentication || !error.subject().empty()) return error;
  const EngineOptions& options = session_.engine().options();
  const std::string identity =
      options.key ? "as '" + options.client_name + "' with a key" : std::string{"without a key"};
  return error.with_subject(session_.server_address() + " over " +
                            std::string{to_string(session_.kind())} + ", " + identity);
}

/// Errors: those of control::ClientHandshake and SessionCore::call().
Result<control::Welcome> Handshake::prove(Request request, const config::SecretKey& key,
                                          Deadline deadline) {
  auto handshake = control::ClientHandshake::start(key);
  if (!handshake) return handshake.error();
  handshake->write(*request.mutable_hello());
  std::vector<std::byte> raw;
  const auto challenged = session_.call(std::move(request), "hello", deadline, &raw);
  if (!challenged) return challenged.error();
  handshake->hello_sent(raw);
  auto proof = handshake->challenged(challenged->reply, challenged->raw);
  if (!proof) return proof.error();
  Request prove;
  *prove.mutable_prove() = std::move(*proof);
  const auto admitted = session_.call(std::move(prove), "hello", deadline, &raw);
  if (!admitted) return admitted.error();
  handshake->proof_sent(raw);
  return handshake->admitted(admitted->reply.prove());
}

}  // namespace remora::detail
