#include "protocol/client_handshake.h"

#include <algorithm>

#include "protocol/authentication.h"

namespace remora::control {

using config::SecretKey;

Result<ClientHandshake> ClientHandshake::start(const SecretKey& key) {
  auto nonce = make_nonce();
  if (!nonce) return nonce.error();
  return ClientHandshake{key, std::move(*nonce)};
}

void ClientHandshake::write(Hello& hello) const {
  hello.set_auth(AUTH_KEYS);
  hello.set_nonce(nonce_);
  // A client with a key requires the server's proof, which older versions do not have.
  hello.set_version_oldest(std::max(hello.version_oldest(), kVersionOfKeys));
}

Result<ProveRequest> ClientHandshake::challenged(const Reply& reply,
                                                 std::span<const std::byte> raw) {
  if (reply.has_hello())
    return not_authenticated().with_subject("the server asks for no key and proves none");
  const Challenge& challenge = reply.challenge();
  if (!reply.has_challenge() || challenge.nonce().size() != kNonceBytes)
    return Error{Code::kProtocol, "hello"}.with_subject("challenge");
  // A server that sends the client's own nonce back has drawn none.
  if (challenge.nonce() == nonce_)
    return Error{Code::kProtocol, "hello"}.with_subject("challenge: our own nonce");
  version_ = challenge.version();
  if (version_ < kVersionOfKeys)
    return Error{Code::kConnectionRefused, "hello"}.with_reason(Reason::kVersion);
  transcript_.add(raw);
  const auto proof = transcript_.proof(Transcript::Side::kClient, key_);
  if (!proof) return proof.error();
  ProveRequest request;
  request.set_proof(to_text(*proof));
  return request;
}

Result<Welcome> ClientHandshake::admitted(const Admission& admission) {
  transcript_.add(admission.welcome());
  const auto proof = transcript_.proof(Transcript::Side::kServer, key_);
  if (!proof) return proof.error();
  if (!is_claimed(*proof, admission.proof()))
    return not_authenticated().with_subject("the server does not prove to know the key");
  Welcome welcome;
  if (!welcome.ParseFromString(admission.welcome()) || welcome.version() != version_)
    return Error{Code::kProtocol, "hello"}.with_subject("welcome");
  return welcome;
}

}  // namespace remora::control
