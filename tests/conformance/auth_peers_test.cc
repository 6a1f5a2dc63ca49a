/// A server with keys, and peers without the client library: peers without a key, peers that replay
/// messages or do not finish the handshake, and clients that send too many requests.

#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/server.h>
#include <remora/metrics/registry.h>

#include "raw_channel.h"
#include "support/eventually.h"
#include "support/expect.h"
#include "support/fault_line.h"
#include "support/held_before.h"
#include "support/runtime_dir.h"
#include "support/server.h"
#include "support/timed.h"

namespace remora::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using config::SecretKey;

constexpr std::chrono::seconds kHandshake{3};

class AuthPeersTest : public testing::Test {
 protected:
  void SetUp() override { start(keyed()); }
  void TearDown() override {
    held_before_.expect_again(server_);
    if (line_.operations != 0) line_.print("tcp");
  }
  [[nodiscard]] config::ServerConfig keyed() const {
    config::ServerConfig config = server_config(TransportKind::kTcp);
    config.log.level = config::LogLevel::kOff;
    config.limits.handshake_timeout = 60s;
    config.auth = config::Auth::kKeys;
    config.clients.resize(2);
    config.clients[0].name = "alice";
    config.clients[0].key = alice_;
    config.clients[0].create = true;
    config.clients[1].name = "bob";
    config.clients[1].key = bob_;
    return config;
  }
  void start(config::ServerConfig config) {
    if (server_) server_->stop();
    host_ = config.listen.address;
    server_ = Server::start(config).value();
    address_ = {host_, server_->port()};
  }
  /// Starts a server that soon hangs up on peers which do not continue the handshake.
  void start_impatient() {
    config::ServerConfig config = keyed();
    config.limits.handshake_timeout = kHandshake;
    start(config);
  }
  [[nodiscard]] std::string uri() const {
    return "remora://" + host_ + ":" + std::to_string(server_->port()) + "?transport=tcp";
  }
  [[nodiscard]] static Engine engine(const std::string& name, std::optional<SecretKey> key) {
    EngineOptions options;
    options.client_name = name;
    options.key = std::move(key);
    return Engine::open(options).value();
  }
  void expect_refused(const std::string& name, const std::optional<SecretKey>& key) {
    const auto began = Clock::now();
    const auto session = engine(name, key).connect(uri());
    ++line_.rounds;
    line_.ended(session ? "" : to_string(session.error().reason()), Clock::now() - began);
    ASSERT_FALSE(session) << name;
    EXPECT_EQ(session.error().code(), Code::kConnectionRefused) << session.error();
    EXPECT_EQ(session.error().reason(), Reason::kAuthentication) << session.error();
  }
  /// Counts an attempt to be admitted, begun at `began`: the server refuses it or hangs up. Returns
  /// the refusal; none: the server hung up.
  std::optional<Error> expect_out(RawChannel& channel, const std::optional<Bytes>& answer,
                                  Clock::time_point began) {
    EXPECT_FALSE(lets_in(answer));
    const std::optional<Error> failure = failure_of(answer);
    EXPECT_TRUE(channel.ended());
    ++line_.rounds;
    line_.ended(failure ? to_string(failure->reason()) : "hung up", Clock::now() - began);
    return failure;
  }
  [[nodiscard]] std::uint64_t refused(const char* reason) const {
    metrics::Registry& registry = server_->registry();
    return registry.value(
        registry.counter("remora_server_sessions_refused_total", "-", {{"reason", reason}})
            .value());
  }
  [[nodiscard]] std::uint64_t ended(const char* reason) const {
    metrics::Registry& registry = server_->registry();
    return registry.value(
        registry.counter("remora_server_sessions_ended_total", "-", {{"reason", reason}}).value());
  }

  std::optional<Server> server_;
  std::string host_;
  ServerAddress address_;
  RuntimeDir folder_;
  SecretKey alice_ = SecretKey::generate().value();
  SecretKey bob_ = SecretKey::generate().value();
  SecretKey unknown_key_ = SecretKey::generate().value();
  const HeldBefore held_before_{"auth_peers", [this] {
                                  start(keyed());
                                  (void)engine("alice", alice_).connect(uri()).value();
                                  (void)RawChannel{address_}.shake_hands("alice", alice_);
                                  server_->stop();
                                  server_.reset();
                                }};
  FaultLine line_;
};

TEST_F(AuthPeersTest, NameAndKeyLetIn) {
  const auto session = engine("alice", alice_).connect(uri());
  ASSERT_TRUE(session) << session.error();
  EXPECT_TRUE(session->create_region({.name = "r", .size_bytes = 64_KiB}).ok());
  EXPECT_NE(server_->status_json().find("\"client\":\"alice\""), std::string::npos);
  EXPECT_NE(server_->status_json().find("\"client_proven\":true"), std::string::npos);
}

TEST_F(AuthPeersTest, AllElseIsRefusedAndCounted) {
  expect_refused("alice", unknown_key_);
  expect_refused("alice", bob_);
  EXPECT_EQ(refused("wrong_key"), 2U);
  expect_refused("carol", alice_);
  EXPECT_EQ(refused("unknown_client"), 1U);
  expect_refused("alice", std::nullopt);
  EXPECT_EQ(refused("no_key"), 1U);
  EXPECT_EQ(server_->status().grants, 0U);
}

TEST_F(AuthPeersTest, UnknownNamesAreAnsweredAsWrongKeys) {
  std::vector<Bytes> answers;
  for (const char* const name : {"alice", "carol"}) {
    RawChannel channel{address_};
    auto handshake = control::ClientHandshake::start(unknown_key_).value();
    const Bytes hello = RawChannel::request(RawChannel::hello(name, handshake), 1);
    handshake.hello_sent(hello);
    const auto challenge = channel.ask(hello);
    ASSERT_TRUE(challenge) << name;
    const auto proof =
        handshake.challenged(control::decode(*challenge).value().reply(), *challenge);
    ASSERT_TRUE(proof) << name;
    control::Request prove;
    *prove.mutable_prove() = *proof;
    const auto answer = channel.ask(RawChannel::request(prove, 2));
    ASSERT_TRUE(answer) << name;
    answers.push_back(*answer);
    EXPECT_TRUE(channel.ended()) << name;
  }
  EXPECT_EQ(answers[0], answers[1]);
}

TEST_F(AuthPeersTest, ClientWithAKeyWantsAServerThatHasIt) {
  start(server_config(TransportKind::kTcp));
  expect_refused("alice", alice_);
  EXPECT_EQ(refused("authentication"), 1U);
  EXPECT_TRUE(engine("alice", std::nullopt).connect(uri()).ok());
}

TEST_F(AuthPeersTest, KeysAreChangedWithoutARestart) {
  const Engine old_engine = engine("alice", alice_);
  const Session old_session = old_engine.connect(uri()).value();
  const Engine other_engine = engine("bob", bob_);
  const Session others = other_engine.connect(uri()).value();
  const SecretKey fresh = SecretKey::generate().value();
  std::vector<config::ClientConfig> clients = keyed().clients;
  clients[0].previous_key = clients[0].key;
  clients[0].key = fresh;
  ASSERT_TRUE(ok(server_->set_clients(clients)));
  const Engine fresh_engine = engine("alice", fresh);
  const Session kept = fresh_engine.connect(uri()).value();
  EXPECT_TRUE(engine("alice", alice_).connect(uri()).ok());
  EXPECT_TRUE(old_session.regions().ok());
  // The server ends the sessions of a key that is removed.
  clients[0].previous_key.reset();
  ASSERT_TRUE(ok(server_->set_clients(clients)));
  EXPECT_TRUE(eventually([&] { return !old_session.connected(); }));
  EXPECT_FALSE(old_session.connected());
  EXPECT_EQ(ended("unknown_client"), 1U);
  EXPECT_TRUE(engine("alice", fresh).connect(uri()).ok());
  expect_refused("alice", alice_);
  EXPECT_TRUE(kept.regions().ok());
  // The server ends the sessions of a client that is removed: bob's.
  clients.pop_back();
  ASSERT_TRUE(ok(server_->set_clients(clients)));
  EXPECT_TRUE(eventually([&] { return !others.connected(); }));
  EXPECT_FALSE(others.connected());
  EXPECT_EQ(ended("unknown_client"), 2U);
  EXPECT_TRUE(kept.regions().ok());
  clients[0].name = "a b";
  const Status wrong = server_->set_clients(clients);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(engine("alice", fresh).connect(uri()).ok()) << "the clients are the same as before";
}

TEST_F(AuthPeersTest, ReplayAdmitsNoClient) {
  const RawChannel::Recorded recorded = RawChannel{address_}.shake_hands("alice", alice_);
  ASSERT_TRUE(recorded.admission);
  const auto began = Clock::now();
  RawChannel channel{address_};
  const auto challenge = channel.ask(recorded.hello);
  ASSERT_TRUE(challenge);
  EXPECT_NE(*challenge, recorded.challenge);
  const auto failure = expect_out(channel, channel.ask(recorded.prove), began);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->reason(), Reason::kAuthentication);
}

TEST_F(AuthPeersTest, ServersOwnMessagesAdmitNoClient) {
  const RawChannel::Recorded recorded = RawChannel{address_}.shake_hands("alice", alice_);
  ASSERT_TRUE(recorded.admission);
  const auto proof = control::decode(*recorded.admission).value().reply().prove().proof();
  for (const std::string& said :
       {proof, control::decode(recorded.challenge).value().reply().challenge().nonce()}) {
    const auto began = Clock::now();
    RawChannel channel{address_};
    ASSERT_TRUE(channel.ask(recorded.hello));
    control::Request prove;
    prove.mutable_prove()->set_proof(said);
    expect_out(channel, channel.ask(RawChannel::request(prove, 2)), began);
  }
}

TEST_F(AuthPeersTest, HelloCutAnywhereAdmitsNoClient) {
  start_impatient();
  auto handshake = control::ClientHandshake::start(alice_).value();
  const Bytes whole = RawChannel::request(RawChannel::hello("alice", handshake), 1);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    SCOPED_TRACE(length);
    const auto began = Clock::now();
    RawChannel channel{address_};
    channel.say(Bytes{whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)});
    // The server refuses a cut Hello that still parses: it lacks name or random bytes, its end.
    expect_out(channel, channel.hear(), began);
  }
}

TEST_F(AuthPeersTest, ProofCutOrChangedAnywhereAdmitsNoClient) {
  start_impatient();
  const std::size_t size = [&] {
    const auto recorded = RawChannel{address_}.shake_hands("alice", alice_);
    return recorded.prove.size();
  }();
  ASSERT_GT(size, control::kProofBytes);
  // Cuts the message at each length, then changes each byte of the proof, its last 32 bytes.
  for (std::size_t way = 0; way < size + control::kProofBytes; ++way) {
    SCOPED_TRACE(way);
    const auto began = Clock::now();
    RawChannel channel{address_};
    auto handshake = control::ClientHandshake::start(alice_).value();
    const Bytes hello = RawChannel::request(RawChannel::hello("alice", handshake), 1);
    handshake.hello_sent(hello);
    const auto challenge = channel.ask(hello);
    ASSERT_TRUE(challenge);
    control::Request request;
    *request.mutable_prove() =
        handshake.challenged(control::decode(*challenge).value().reply(), *challenge).value();
    Bytes prove = RawChannel::request(request, 2);
    ASSERT_EQ(prove.size(), size);
    if (way < size)
      prove.resize(way);
    else
      prove[way - control::kProofBytes] ^= std::byte{1};
    expect_out(channel, channel.ask(prove), began);
  }
}

TEST_F(AuthPeersTest, DowngradeIsRefused) {
  const auto refusal = [&](std::uint32_t newest, control::Auth auth) -> std::optional<Error> {
    const auto began = Clock::now();
    RawChannel channel{address_};
    auto handshake = control::ClientHandshake::start(alice_).value();
    control::Request request = RawChannel::hello("alice", handshake);
    request.mutable_hello()->set_version_oldest(1);
    request.mutable_hello()->set_version_newest(newest);
    request.mutable_hello()->set_auth(auth);
    return expect_out(channel, channel.ask(RawChannel::request(request, 1)), began);
  };
  EXPECT_EQ(refusal(1, control::AUTH_KEYS)->reason(), Reason::kVersion);
  EXPECT_EQ(refusal(1, control::AUTH_NONE)->reason(), Reason::kAuthentication);
  EXPECT_EQ(refusal(2, control::AUTH_NONE)->reason(), Reason::kAuthentication);
  EXPECT_EQ(refusal(2, control::AUTH_UNSPECIFIED)->reason(), Reason::kAuthentication);
  EXPECT_EQ(refusal(2, static_cast<control::Auth>(3))->reason(), Reason::kAuthentication);
  EXPECT_EQ(refusal(0, control::AUTH_KEYS)->reason(), Reason::kVersion);
}

TEST_F(AuthPeersTest, NothingIsServedOutOfTurn) {
  control::Request list;
  list.mutable_list();
  control::Request prove;
  prove.mutable_prove()->set_proof(std::string(control::kProofBytes, 'p'));
  for (const control::Request* const first : {&list, &prove}) {
    RawChannel channel{address_};
    EXPECT_FALSE(channel.ask(RawChannel::request(*first, 1)))
        << "the server hangs up without an answer";
    EXPECT_TRUE(channel.ended());
  }
  // A second Hello, or another request, between Hello and proof.
  auto handshake = control::ClientHandshake::start(alice_).value();
  control::Request hello = RawChannel::hello("alice", handshake);
  for (const control::Request* const second : {&list, &hello}) {
    RawChannel channel{address_};
    ASSERT_TRUE(channel.ask(RawChannel::request(hello, 1)));
    EXPECT_FALSE(channel.ask(RawChannel::request(*second, 2)));
    EXPECT_TRUE(channel.ended());
  }
  // A second proof, after the handshake.
  RawChannel channel{address_};
  ASSERT_TRUE(channel.shake_hands("alice", alice_).admission);
  EXPECT_TRUE(channel.ask(RawChannel::request(list, 3)));
  // The server sends an event that it ends the session, and no answer.
  const auto last = channel.ask(RawChannel::request(prove, 4));
  ASSERT_TRUE(last);
  EXPECT_TRUE(control::decode(*last).value().event().has_ending());
  EXPECT_TRUE(channel.ended());
}

TEST_F(AuthPeersTest, ALaneNeedsAnAdmittedSession) {
  RawChannel channel{address_};
  auto handshake = control::ClientHandshake::start(alice_).value();
  ASSERT_TRUE(channel.ask(RawChannel::request(RawChannel::hello("alice", handshake), 1)));
  EXPECT_FALSE(channel.endpoint().open_lane({.session_id = 1, .secret = 1}, 16, Clock::now() + 5s));
}

TEST_F(AuthPeersTest, SilenceAfterTheChallengeIsHungUpOn) {
  start_impatient();
  RawChannel channel{address_};
  auto handshake = control::ClientHandshake::start(alice_).value();
  ASSERT_TRUE(channel.ask(RawChannel::request(RawChannel::hello("alice", handshake), 1)));
  EXPECT_TRUE(channel.ended());
  EXPECT_EQ(refused("no_hello"), 1U);
}

TEST_F(AuthPeersTest, TheOldestOfTooManyPendingHandshakesGoes) {
  config::ServerConfig config = keyed();
  config.limits.pending_handshakes_max = 4;
  config.limits.sessions_max = 1;
  start(config);
  const Engine client = engine("alice", alice_);
  const Session session = client.connect(uri()).value();
  std::vector<std::unique_ptr<RawChannel>> silent;
  silent.reserve(6);
  for (int i = 0; i < 6; ++i) silent.push_back(std::make_unique<RawChannel>(address_));
  EXPECT_TRUE(silent[0]->ended(10s));
  EXPECT_TRUE(silent[1]->ended(10s));
  EXPECT_EQ(refused("pending_handshakes"), 2U);
  EXPECT_FALSE(silent[5]->ended(10ms));
  EXPECT_TRUE(session.regions().ok());
  // Pending handshakes do not count as sessions; an admitted client does.
  const auto second = engine("bob", bob_).connect(uri());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kLimitExceeded) << second.error();
}

TEST_F(AuthPeersTest, ServerThatStopsWaitsForNoneThatIsNotLetIn) {
  config::ServerConfig config = keyed();
  config.limits.drain_timeout = 60s;
  start(config);
  RawChannel silent{address_};
  ASSERT_TRUE(eventually([&] { return server_->status().sessions == 1; }));
  const Timed timed;
  server_->stop();
  EXPECT_TRUE(timed.took_at_most(20s));
  EXPECT_TRUE(silent.ended());
}

/// The server admits ten requests a second of a client.
class AskingTest : public AuthPeersTest {
 protected:
  void SetUp() override {
    config::ServerConfig config = keyed();
    config.limits.requests_per_second = 10;
    start(config);
  }
  [[nodiscard]] double delayed() const {
    return server_->registry().sum("remora_server_requests_delayed_total").value();
  }
  /// Sends `request` again and again until the server delays one, which is not before the requests
  /// of two seconds. The server answers that one too, as it did those before.
  void ask_until_delayed(const control::Request& request) {
    RawChannel channel{address_};
    ASSERT_TRUE(channel.shake_hands("alice", alice_).admission);  // 2 of the 20 requests
    int answered = 0;
    for (; answered < 2000 && delayed() == 0; ++answered) {
      const auto answer =
          channel.ask(RawChannel::request(request, 10 + static_cast<std::uint64_t>(answered)));
      ASSERT_TRUE(answer) << "the session ended after " << answered;
      const auto failure = failure_of(answer);
      ASSERT_TRUE(!failure || failure->code() != Code::kLimitExceeded) << *failure;
    }
    EXPECT_GE(answered, 18);
    EXPECT_GE(delayed(), 1);
    EXPECT_FALSE(channel.ended(10ms));
    for (const char* reason : {"protocol", "lost", "lapsed", "refused"})
      EXPECT_EQ(ended(reason), 0U) << reason;
  }
};

TEST_F(AskingTest, PingsBeyondThoseBesideTheRequestsAreSlowedDown) {
  control::Request ping;
  ping.mutable_ping();
  ask_until_delayed(ping);
}

TEST_F(AskingTest, AcknowledgementsOfNoEventAreSlowedDown) {
  control::Request acknowledgement;
  acknowledgement.mutable_event_ack()->set_event_id(7);
  ask_until_delayed(acknowledgement);
}

TEST_F(AskingTest, NoticesWhereLanesHaveThemAreSlowedDown) {
  control::Request notice;
  notice.mutable_notify()->set_grant_id(7);
  notice.mutable_notify()->set_length_bytes(8);
  ask_until_delayed(notice);
}

TEST_F(AskingTest, GoodbyesAfterTheFirstAreSlowedDown) {
  control::Request goodbye;
  goodbye.mutable_goodbye();
  ask_until_delayed(goodbye);
}

TEST_F(AskingTest, MoreUnansweredThanAClientMayHaveEndTheSession) {
  control::Request usage;
  usage.mutable_usage();
  RawChannel channel{address_};
  ASSERT_TRUE(channel.shake_hands("alice", alice_).admission);
  // Uses up the requests that the server admits at once, so that it then delays at most nine.
  std::uint64_t id = 10;
  while (delayed() == 0) ASSERT_TRUE(channel.ask(RawChannel::request(usage, id++)));
  for (int i = 0; i < 40; ++i) channel.say(RawChannel::request(usage, id++));
  EXPECT_TRUE(channel.ended());
  EXPECT_EQ(ended("protocol"), 1U);
  EXPECT_TRUE(engine("bob", bob_).connect(uri()));
}

TEST_F(AskingTest, GoodbyeIsAnsweredAfterWhatWaitsAndWithoutWaiting) {
  control::Request usage;
  usage.mutable_usage();
  control::Request goodbye;
  goodbye.mutable_goodbye();
  {
    RawChannel channel{address_};
    ASSERT_TRUE(channel.shake_hands("alice", alice_, RawChannel::Leaves::kMayComeBack).admission);
    std::uint64_t id = 10;
    while (delayed() == 0) ASSERT_TRUE(channel.ask(RawChannel::request(usage, id++)));
    const std::uint64_t first = id;
    for (int i = 0; i < 7; ++i) channel.say(RawChannel::request(usage, id++));
    channel.say(RawChannel::request(goodbye, id));
    for (std::uint64_t expected = first; expected <= id; ++expected) {
      const auto answer = channel.hear();
      ASSERT_TRUE(answer);
      EXPECT_EQ(control::decode(*answer)->id(), expected);
    }
  }
  EXPECT_TRUE(eventually([&] { return ended("left") == 1; }));
  EXPECT_EQ(ended("lost"), 0U);
}

TEST_F(AskingTest, WhatWaitsWhenItsClientHangsUpIsDone) {
  control::Request usage;
  usage.mutable_usage();
  control::Request create;
  create.mutable_create()->mutable_region()->set_name("late");
  create.mutable_create()->mutable_region()->set_size_bytes(4096);
  create.mutable_create()->mutable_region()->set_block_bytes(4096);
  create.mutable_create()->mutable_region()->set_rights(static_cast<std::uint32_t>(Rights::kAll));
  create.mutable_create()->mutable_region()->set_atomic_domain("auto");
  {
    RawChannel channel{address_};
    ASSERT_TRUE(channel.shake_hands("alice", alice_).admission);
    std::uint64_t id = 10;
    while (delayed() == 0) ASSERT_TRUE(channel.ask(RawChannel::request(usage, id++)));
    for (int i = 0; i < 4; ++i) channel.say(RawChannel::request(usage, id++));
    channel.say(RawChannel::request(create, id));
  }
  EXPECT_TRUE(eventually([&] {
    const auto regions = server_->regions();
    return std::any_of(regions.begin(), regions.end(),
                       [](const RegionInfo& region) { return region.name == "late"; });
  }));
  EXPECT_TRUE(eventually([&] { return server_->status().sessions == 0; }));
}

}  // namespace
}  // namespace remora::test
