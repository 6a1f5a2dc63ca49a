#include "protocol/server_handshake.h"

#include <algorithm>
#include <utility>

#include "protocol/authentication.h"

namespace remora::control {

using config::SecretKey;

Result<ServerHandshake> ServerHandshake::start(const Hello& hello, std::span<const std::byte> raw,
                                               std::uint32_t version_newest) {
  const Error wrong{Code::kConnectionRefused, "hello"};
  if (hello.version_newest() < kVersionOfKeys || version_newest < kVersionOfKeys)
    return wrong.with_reason(Reason::kVersion).with_limit(hello.version_newest(), kVersionOfKeys);
  if (!config::is_client_name(hello.client_name()) || hello.nonce().size() != kNonceBytes)
    return not_authenticated();
  auto nonce = make_nonce();
  if (!nonce) return nonce.error();
  ServerHandshake made;
  made.hello_ = hello;
  made.client_name_ = hello.client_name();
  made.nonce_ = std::move(*nonce);
  made.version_ = std::min(hello.version_newest(), version_newest);
  made.transcript_.add(raw);
  return made;
}

Challenge ServerHandshake::challenge() const {
  Challenge challenge;
  challenge.set_version(version_);
  challenge.set_nonce(nonce_);
  return challenge;
}

Status ServerHandshake::prove(const ProveRequest& request, std::span<const std::byte> raw,
                              const Keys& keys) {
  // Two proofs are always computed and compared, so that the time does not show whether the client
  // exists or has two keys.
  const auto stand_in = SecretKey::generate();
  if (!stand_in) return stand_in.error();
  bool known = false;
  for (const std::optional<SecretKey>* const key : {&keys.current, &keys.previous}) {
    const auto expected =
        transcript_.proof(Transcript::Side::kClient, key->has_value() ? **key : *stand_in);
    if (!expected) return expected.error();
    if (!is_claimed(*expected, request.proof()) || !key->has_value()) continue;
    key_ = **key;
    known = true;
  }
  transcript_.add(raw);
  return known ? Status{} : Status{not_authenticated()};
}

Result<Admission> ServerHandshake::admit(const Welcome& welcome) {
  if (!key_) return Error{Code::kInternal, "admission without proof"};
  Admission admission;
  welcome.SerializeToString(admission.mutable_welcome());
  transcript_.add(admission.welcome());
  const auto proof = transcript_.proof(Transcript::Side::kServer, *key_);
  if (!proof) return proof.error();
  admission.set_proof(to_text(*proof));
  return admission;
}

}  // namespace remora::control
