// The handshake by keys, without a network: both sides, and an attacker between them.

#include "protocol/authentication.h"

#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

#include "key_texts.h"
#include "protocol/client_handshake.h"
#include "protocol/messages.h"
#include "protocol/server_handshake.h"

namespace remora::control {
namespace {

using config::SecretKey;
using Bytes = std::vector<std::byte>;

TEST(Nonces, Differ) {
  const std::string a = make_nonce().value();
  EXPECT_EQ(a.size(), kNonceBytes);
  EXPECT_NE(a, make_nonce().value());
}

/// The four messages of one handshake, as they were sent.
struct Recorded {
  Bytes hello;
  Bytes challenge;
  Bytes prove;
  Bytes admission;
};
enum class Step : std::uint8_t { kHello, kChallenge, kProve, kAdmission };

/// How far it came, on either side.
struct Outcome {
  bool server_admits = false;
  bool client_accepts = false;
};

/// One handshake, every message of which goes through `between`.
class Handshake {
 public:
  using Between = std::function<Bytes(Step, Bytes)>;

  Outcome run(const SecretKey& client_key, const ServerHandshake::Keys& keys,
              const Between& between = {}) {
    between_ = between;
    Outcome outcome;
    auto client = ClientHandshake::start(client_key).value();
    Envelope envelope = envelope_of(1);
    Hello& hello = *envelope.mutable_request()->mutable_hello();
    hello.set_version_oldest(kVersionOldest);
    hello.set_version_newest(kVersionNewest);
    hello.set_client_name("client");
    client.write(hello);
    recorded.hello = encode(envelope).value();
    client.hello_sent(recorded.hello);

    const auto challenge = answer_hello(pass(Step::kHello, recorded.hello));
    if (!challenge) return outcome;
    recorded.challenge = *challenge;

    const Bytes came = pass(Step::kChallenge, *challenge);
    const auto reply = reply_of(came, 1);
    if (!reply || !(reply->has_challenge() || reply->has_hello())) return outcome;
    const auto proof = client.challenged(*reply, came);
    if (!proof) return outcome;
    envelope = envelope_of(2);
    *envelope.mutable_request()->mutable_prove() = *proof;
    recorded.prove = encode(envelope).value();
    client.proof_sent(recorded.prove);

    const auto admission = answer_prove(pass(Step::kProve, recorded.prove), keys);
    if (!admission) return outcome;
    outcome.server_admits = true;
    recorded.admission = *admission;

    const auto last = reply_of(pass(Step::kAdmission, *admission), 2);
    if (!last || !last->has_prove()) return outcome;
    const auto welcome = client.admitted(last->prove());
    outcome.client_accepts = welcome.ok() && welcome->session_id() == 77;
    return outcome;
  }

  Recorded recorded;

 private:
  static Envelope envelope_of(std::uint64_t id) {
    Envelope envelope;
    envelope.set_magic(kMagic);
    envelope.set_id(id);
    return envelope;
  }
  [[nodiscard]] Bytes pass(Step step, Bytes bytes) const {
    return between_ ? between_(step, std::move(bytes)) : bytes;
  }
  /// What a client takes: an answer to what it has asked.
  static std::optional<Reply> reply_of(const Bytes& bytes, std::uint64_t id) {
    const auto envelope = decode(bytes);
    if (!envelope || !envelope->has_reply() || envelope->id() != id) return std::nullopt;
    return envelope->reply();
  }
  std::optional<Bytes> answer_hello(const Bytes& came) {
    const auto envelope = decode(came);
    if (!envelope || !envelope->has_request() || !envelope->request().has_hello()) return {};
    const Hello& hello = envelope->request().hello();
    // The server's own rules, see ServerSession::hello().
    if (hello.auth() != AUTH_KEYS || hello.version_oldest() > kVersionNewest) return {};
    auto server = ServerHandshake::start(hello, came, kVersionNewest);
    if (!server) return {};
    server_ = std::move(*server);
    Envelope reply = envelope_of(envelope->id());
    *reply.mutable_reply()->mutable_challenge() = server_->challenge();
    Bytes bytes = encode(reply).value();
    server_->challenge_sent(bytes);
    return bytes;
  }
  std::optional<Bytes> answer_prove(const Bytes& came, const ServerHandshake::Keys& keys) {
    const auto envelope = decode(came);
    if (!envelope || !envelope->has_request() || !envelope->request().has_prove()) return {};
    if (!server_->prove(envelope->request().prove(), came, keys)) return {};
    Welcome welcome;
    welcome.set_version(server_->version());
    welcome.set_session_id(77);
    Envelope reply = envelope_of(envelope->id());
    *reply.mutable_reply()->mutable_prove() = server_->admit(welcome).value();
    return encode(reply).value();
  }

  Between between_;
  std::optional<ServerHandshake> server_;
};

ServerHandshake::Keys only(const char* key) {
  return {.current = key_of(key), .previous = std::nullopt};
}

TEST(Handshakes, OfOneKeySucceed) {
  Handshake handshake;
  const Outcome outcome = handshake.run(key_of(kKey), only(kKey));
  EXPECT_TRUE(outcome.server_admits);
  EXPECT_TRUE(outcome.client_accepts);
}

TEST(Handshakes, EitherOfTwoKeysIsGoodWhileTheyChange) {
  const ServerHandshake::Keys both{.current = key_of(kKey), .previous = key_of(kOther)};
  for (const char* const key : {kKey, kOther}) {
    Handshake handshake;
    EXPECT_TRUE(handshake.run(key_of(key), both).client_accepts) << key;
  }
}

TEST(Handshakes, WrongKeyAndNoClientAreRefused) {
  Handshake handshake;
  EXPECT_FALSE(handshake.run(key_of(kOther), only(kKey)).server_admits);
  EXPECT_FALSE(handshake.run(key_of(kKey), {}).server_admits);
}

constexpr Step kSteps[] = {Step::kHello, Step::kChallenge, Step::kProve, Step::kAdmission};

/// Runs a handshake for each way to spoil one message, until `spoil` has none left.
template <typename Spoil>
std::size_t spoil_all(Step at, Spoil&& spoil) {
  std::size_t tried = 0;
  for (std::size_t way = 0;; ++way) {
    Handshake handshake;
    bool spoilt = false;
    const Outcome outcome = handshake.run(key_of(kKey), only(kKey), [&](Step step, Bytes bytes) {
      if (step == at) spoilt = spoil(way, bytes);
      return bytes;
    });
    if (!spoilt) return tried;
    ++tried;
    EXPECT_FALSE(outcome.client_accepts) << static_cast<int>(at) << " way " << way;
    // What comes before the client's proof is covered by that.
    if (at == Step::kHello || at == Step::kChallenge) {
      EXPECT_FALSE(outcome.server_admits) << static_cast<int>(at) << " way " << way;
    }
  }
}

TEST(Tampering, EveryBitOfEveryMessageCounts) {
  for (const Step step : kSteps) {
    const std::size_t tried = spoil_all(step, [](std::size_t bit, Bytes& bytes) {
      if (bit >= 8 * bytes.size()) return false;
      bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      return true;
    });
    EXPECT_GE(tried, 8 * (kProofBytes + 8)) << static_cast<int>(step);
  }
}

TEST(Tampering, EveryMessageCutAnywhereIsRefused) {
  for (const Step step : kSteps) {
    const std::size_t tried = spoil_all(step, [](std::size_t length, Bytes& bytes) {
      if (length >= bytes.size()) return false;
      bytes.resize(length);
      return true;
    });
    EXPECT_GE(tried, kProofBytes + 8) << static_cast<int>(step);
  }
}

// An unknown field is ignored in a message, and still counts in the proof.
TEST(Tampering, WhatIsAddedCounts) {
  for (const Step step : {Step::kHello, Step::kChallenge, Step::kProve}) {
    const std::size_t tried = spoil_all(step, [](std::size_t way, Bytes& bytes) {
      if (way > 0) return false;
      for (const unsigned byte : {0xa0U, 0x06U, 0x01U}) bytes.push_back(std::byte(byte));
      return true;
    });
    EXPECT_EQ(tried, 1U);
  }
}

TEST(Replay, OfARecordedClientIsRefused) {
  Handshake first;
  ASSERT_TRUE(first.run(key_of(kKey), only(kKey)).client_accepts);
  Handshake second;
  const Outcome outcome = second.run(key_of(kOther), only(kKey), [&](Step step, Bytes bytes) {
    if (step == Step::kHello) return first.recorded.hello;
    if (step == Step::kProve) return first.recorded.prove;
    return bytes;
  });
  EXPECT_FALSE(outcome.server_admits);
}

TEST(Replay, OfARecordedServerIsRefused) {
  Handshake first;
  ASSERT_TRUE(first.run(key_of(kKey), only(kKey)).client_accepts);
  Handshake second;
  const Outcome outcome = second.run(key_of(kKey), only(kKey), [&](Step step, Bytes bytes) {
    if (step == Step::kChallenge) return first.recorded.challenge;
    if (step == Step::kAdmission) return first.recorded.admission;
    return bytes;
  });
  EXPECT_FALSE(outcome.client_accepts);
}

// A peer without the key gives a client its own proof back.
TEST(Reflection, OfTheClientsProofIsRefused) {
  auto client = ClientHandshake::start(key_of(kKey)).value();
  Hello hello;
  client.write(hello);
  Reply reply;
  reply.mutable_challenge()->set_version(kVersionNewest);
  reply.mutable_challenge()->set_nonce(std::string(kNonceBytes, 'n'));
  const auto proof = client.challenged(reply, {});
  ASSERT_TRUE(proof);
  client.proof_sent({});
  Welcome welcome;
  welcome.set_version(kVersionNewest);
  Admission admission;
  admission.set_welcome(welcome.SerializeAsString());
  admission.set_proof(proof->proof());
  const auto admitted = client.admitted(admission);
  ASSERT_FALSE(admitted);
  EXPECT_EQ(admitted.error().code(), Code::kConnectionRefused);
  EXPECT_EQ(admitted.error().reason(), Reason::kAuthentication);
}

TEST(Reflection, OfTheClientsNonceIsRefused) {
  auto client = ClientHandshake::start(key_of(kKey)).value();
  Hello hello;
  client.write(hello);
  Reply reply;
  reply.mutable_challenge()->set_version(kVersionNewest);
  reply.mutable_challenge()->set_nonce(hello.nonce());
  EXPECT_FALSE(client.challenged(reply, {}));
}

// A server's proof from one handshake is no client's proof in another.
TEST(Reflection, OfTheServersProofIsRefused) {
  Handshake first;
  ASSERT_TRUE(first.run(key_of(kKey), only(kKey)).client_accepts);
  const std::string servers = decode(first.recorded.admission)->reply().prove().proof();
  Handshake second;
  const Outcome outcome = second.run(key_of(kOther), only(kKey), [&](Step step, Bytes bytes) {
    if (step != Step::kProve) return bytes;
    Envelope envelope = decode(bytes).value();
    envelope.mutable_request()->mutable_prove()->set_proof(servers);
    return encode(envelope).value();
  });
  EXPECT_FALSE(outcome.server_admits);
}

TEST(Downgrade, ToNoKeysIsRefusedByTheClient) {
  Handshake handshake;
  const Outcome outcome = handshake.run(key_of(kKey), only(kKey), [](Step step, Bytes bytes) {
    if (step != Step::kChallenge) return bytes;
    Envelope envelope = decode(bytes).value();
    envelope.mutable_reply()->mutable_hello()->set_version(kVersionNewest);
    return encode(envelope).value();
  });
  EXPECT_FALSE(outcome.client_accepts);
}

TEST(Downgrade, OfTheVersionIsRefusedByBoth) {
  Handshake handshake;
  const auto lower = [](std::uint32_t newest) {
    return [newest](Step step, Bytes bytes) {
      if (step != Step::kHello) return bytes;
      Envelope envelope = decode(bytes).value();
      Hello& hello = *envelope.mutable_request()->mutable_hello();
      hello.set_version_oldest(1);
      hello.set_version_newest(newest);
      return encode(envelope).value();
    };
  };
  EXPECT_FALSE(handshake.run(key_of(kKey), only(kKey), lower(1)).server_admits);
  // The range says what it said before, but not in the same bytes.
  EXPECT_FALSE(handshake.run(key_of(kKey), only(kKey), lower(kVersionNewest)).server_admits);
  auto client = ClientHandshake::start(key_of(kKey)).value();
  Reply reply;
  reply.mutable_challenge()->set_version(1);
  reply.mutable_challenge()->set_nonce(std::string(kNonceBytes, 'n'));
  const auto proof = client.challenged(reply, {});
  ASSERT_FALSE(proof);
  EXPECT_EQ(proof.error().reason(), Reason::kVersion);
}

TEST(Hellos, WithoutNameOrNonceAreRefused) {
  Hello hello;
  hello.set_version_oldest(2);
  hello.set_version_newest(2);
  hello.set_auth(AUTH_KEYS);
  const auto starts = [&] { return ServerHandshake::start(hello, {}, kVersionNewest).ok(); };
  hello.set_client_name("client");
  hello.set_nonce(std::string(kNonceBytes, 'n'));
  EXPECT_TRUE(starts());
  for (const std::size_t length : {std::size_t{0}, kNonceBytes - 1, kNonceBytes + 1}) {
    hello.set_nonce(std::string(length, 'n'));
    EXPECT_FALSE(starts()) << length;
  }
  hello.set_nonce(std::string(kNonceBytes, 'n'));
  for (const std::string& name : {std::string{}, std::string{"a b"}, std::string(65, 'a')}) {
    hello.set_client_name(name);
    EXPECT_FALSE(starts()) << name;
  }
}

TEST(Admissions, NeedAProof) {
  Hello hello;
  hello.set_version_oldest(2);
  hello.set_version_newest(2);
  hello.set_client_name("client");
  hello.set_nonce(std::string(kNonceBytes, 'n'));
  auto server = ServerHandshake::start(hello, {}, kVersionNewest).value();
  EXPECT_EQ(server.admit({}).error().code(), Code::kInternal);
  ProveRequest prove;
  EXPECT_FALSE(server.prove(prove, {}, only(kKey)));
  prove.set_proof(std::string(kProofBytes, '\0'));
  EXPECT_FALSE(server.prove(prove, {}, only(kKey)));
  EXPECT_EQ(server.admit({}).error().code(), Code::kInternal);
}

}  // namespace
}  // namespace remora::control
