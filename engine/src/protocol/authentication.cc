#include "protocol/authentication.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <utility>

#include <remora/assert.h>

namespace remora::control {

using config::SecretKey;

namespace {

constexpr std::string_view kClientLabel = "remora client 2";
constexpr std::string_view kServerLabel = "remora server 2";

void append_part(std::vector<std::byte>& to, std::span<const std::byte> part) {
  REMORA_ASSERT(part.size() <= std::numeric_limits<std::uint32_t>::max(),
                "the length of a part of a transcript fits its four bytes");
  const auto length = static_cast<std::uint32_t>(part.size());
  for (unsigned shift = 0; shift < 32; shift += 8)
    to.push_back(static_cast<std::byte>((length >> shift) & 0xffU));
  to.insert(to.end(), part.begin(), part.end());
}

std::string text_of(const Proof& proof) {
  return {reinterpret_cast<const char*>(proof.data()), proof.size()};
}

/// Takes the same time wherever they differ.
bool same(const Proof& proof, const std::string& claimed) noexcept {
  return claimed.size() == proof.size() &&
         CRYPTO_memcmp(proof.data(), claimed.data(), proof.size()) == 0;
}

Error refused() {
  return Error{Code::kConnectionRefused, "hello"}.with_reason(Reason::kAuthentication);
}

}  // namespace

void Transcript::add(std::span<const std::byte> part) { append_part(parts_, part); }

Result<Proof> Transcript::proof(Side side, const SecretKey& key) const {
  const std::string_view label = side == Side::kClient ? kClientLabel : kServerLabel;
  std::vector<std::byte> said;
  said.reserve(4 + label.size() + parts_.size());
  append_part(said, std::as_bytes(std::span{label}));
  said.insert(said.end(), parts_.begin(), parts_.end());
  Proof proof{};
  unsigned length = 0;
  const auto bytes = key.bytes();
  const unsigned char* const done =
      ::HMAC(::EVP_sha256(), bytes.data(), static_cast<int>(bytes.size()),
             reinterpret_cast<const unsigned char*>(said.data()), said.size(),
             reinterpret_cast<unsigned char*>(proof.data()), &length);
  if (done == nullptr || length != proof.size()) return Error{Code::kInternal, "HMAC-SHA256"};
  return proof;
}

Result<std::string> make_nonce() {
  std::string nonce(kNonceBytes, '\0');
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    return Error{Code::kSystem, "getrandom"}.with_errno(errno);
  return nonce;
}

Result<ClientHandshake> ClientHandshake::start(const SecretKey& key) {
  auto nonce = make_nonce();
  if (!nonce) return nonce.error();
  return ClientHandshake{key, std::move(*nonce)};
}

void ClientHandshake::write(Hello& hello) const {
  hello.set_auth(AUTH_KEYS);
  hello.set_nonce(nonce_);
  // A client with a key requires the proof, which an older version does not know.
  hello.set_version_oldest(std::max(hello.version_oldest(), kVersionOfKeys));
}

Result<ProveRequest> ClientHandshake::challenged(const Reply& reply,
                                                 std::span<const std::byte> raw) {
  if (reply.has_hello())
    return refused().with_subject("the server asks for no key and proves none");
  const Challenge& challenge = reply.challenge();
  if (!reply.has_challenge() || challenge.nonce().size() != kNonceBytes)
    return Error{Code::kProtocol, "hello"}.with_subject("challenge");
  // A nonce of our own, sent back, would be a server that has none.
  if (challenge.nonce() == nonce_)
    return Error{Code::kProtocol, "hello"}.with_subject("challenge: our own nonce");
  version_ = challenge.version();
  if (version_ < kVersionOfKeys)
    return Error{Code::kConnectionRefused, "hello"}.with_reason(Reason::kVersion);
  transcript_.add(raw);
  const auto proof = transcript_.proof(Transcript::Side::kClient, key_);
  if (!proof) return proof.error();
  ProveRequest request;
  request.set_proof(text_of(*proof));
  return request;
}

Result<Welcome> ClientHandshake::admitted(const Admission& admission) {
  transcript_.add(admission.welcome());
  const auto proof = transcript_.proof(Transcript::Side::kServer, key_);
  if (!proof) return proof.error();
  if (!same(*proof, admission.proof()))
    return refused().with_subject("the server does not prove to know the key");
  Welcome welcome;
  if (!welcome.ParseFromString(admission.welcome()) || welcome.version() != version_)
    return Error{Code::kProtocol, "hello"}.with_subject("welcome");
  return welcome;
}

Result<ServerHandshake> ServerHandshake::start(const Hello& hello, std::span<const std::byte> raw,
                                               std::uint32_t version_newest) {
  const Error wrong{Code::kConnectionRefused, "hello"};
  if (hello.version_newest() < kVersionOfKeys || version_newest < kVersionOfKeys)
    return wrong.with_reason(Reason::kVersion).with_limit(hello.version_newest(), kVersionOfKeys);
  if (!config::is_client_name(hello.client_name()) || hello.nonce().size() != kNonceBytes)
    return refused();
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
  // Two proofs are computed and compared whatever there is, so that the time says nothing of it.
  const auto stand_in = SecretKey::generate();
  if (!stand_in) return stand_in.error();
  bool known = false;
  for (const std::optional<SecretKey>* const key : {&keys.current, &keys.previous}) {
    const auto expected =
        transcript_.proof(Transcript::Side::kClient, key->has_value() ? **key : *stand_in);
    if (!expected) return expected.error();
    if (!same(*expected, request.proof()) || !key->has_value()) continue;
    key_ = **key;
    known = true;
  }
  transcript_.add(raw);
  return known ? Status{} : Status{refused()};
}

Result<Admission> ServerHandshake::admit(const Welcome& welcome) {
  if (!key_) return Error{Code::kInternal, "admission without proof"};
  Admission admission;
  welcome.SerializeToString(admission.mutable_welcome());
  transcript_.add(admission.welcome());
  const auto proof = transcript_.proof(Transcript::Side::kServer, *key_);
  if (!proof) return proof.error();
  admission.set_proof(text_of(*proof));
  return admission;
}

}  // namespace remora::control
