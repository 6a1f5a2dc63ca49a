// Authentication. A real client and a real server, and an attacker between them that changes,
// replays, reflects and cuts their messages; a false client at the server, and a false server
// before the client, which know some keys. No peer is let in without the right key and the very
// words that were said.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fake_net.h"
#include "protocol/messages.h"
#include "protocol/transcript.h"
#include "script.h"

namespace remora::fuzz {
namespace {

using config::SecretKey;
using control::Envelope;
using control::Reply;
using control::Request;
using control::Transcript;
using detail::EngineCore;

/// Keys by what they are; the fuzzer knows all of them.
enum class Key : std::uint8_t { kCurrent, kPrevious, kOthers, kUnknown };
constexpr std::size_t kKeys = 4;
const SecretKey& key_of(Key key) {
  static const std::array<SecretKey, kKeys> s_keys{
      SecretKey::parse("00112233445566778899aabbccddeeff102132435465768798a9bacbdcedfe0f").value(),
      SecretKey::parse("10112233445566778899aabbccddeeff102132435465768798a9bacbdcedfe0f").value(),
      SecretKey::parse("20112233445566778899aabbccddeeff102132435465768798a9bacbdcedfe0f").value(),
      SecretKey::parse("30112233445566778899aabbccddeeff102132435465768798a9bacbdcedfe0f").value()};
  return s_keys[static_cast<std::size_t>(key)];
}
/// Whether the server lets the client of that name in by that key.
bool is_right(const std::string& name, Key key) {
  if (name == "client") return key == Key::kCurrent || key == Key::kPrevious;
  return name == "other" && key == Key::kOthers;
}

FuzzServer& server() {
  static FuzzServer s_server{[] {
    config::ServerConfig config = server_config(std::uint64_t{1} << 20U);
    config.auth = config::Auth::kKeys;
    config.clients = {{.name = "client",
                       .key = key_of(Key::kCurrent),
                       .previous_key = key_of(Key::kPrevious),
                       .create = true},
                      {.name = "other", .key = key_of(Key::kOthers)}};
    config.limits.session_keep = std::chrono::nanoseconds{0};
    return config;
  }()};
  return s_server;
}

/// Engines of "client", each with one of the keys.
std::shared_ptr<EngineCore> engine(Key key) {
  static std::array<std::shared_ptr<EngineCore>, kKeys> s_engines;
  auto& made = s_engines[static_cast<std::size_t>(key)];
  if (made == nullptr) {
    EngineOptions options = engine_options();
    options.key = key_of(key);
    options.reconnect_for = std::chrono::nanoseconds{0};
    made = EngineCore::create(std::move(options)).value();
  }
  return made;
}

/// Whether the client with that key accepts the server at the other end of the wire.
bool client_accepts(Key key, const std::shared_ptr<ClientWire>& wire) {
  const bool accepts = start_session(engine(key), [wire] { return Result{client_end(wire)}; }).ok();
  wire->forget();
  return accepts;
}

/// The four messages of a handshake, in their order.
using Words = std::array<Bytes, 4>;
constexpr std::size_t kProve = 2, kAdmission = 3;

/// What the Admission's proof speaks for.
std::optional<std::pair<std::string, std::string>> admission_of(const Bytes& bytes) {
  const auto envelope = control::decode(bytes);
  if (!envelope || !envelope->reply().has_prove()) return std::nullopt;
  return std::pair{envelope->reply().prove().welcome(), envelope->reply().prove().proof()};
}

/// An attacker between a client and a server. Their messages come to it one by one.
class Between {
 public:
  /// `recorded`: what a client and the server said some other time.
  Between(const Script& script, const Words& recorded) : script_{script}, recorded_{recorded} {}

  /// Nothing: it hangs up.
  std::optional<Bytes> pass(Bytes said) {
    if (at_ >= said_.size()) return said;  // requests after the handshake
    const std::size_t at = at_++;
    said_[at] = said;
    heard_[at] = said;
    if (at < script_.steps.size()) {
      auto changed = change(at, script_.steps[at], std::move(said));
      if (!changed) return std::nullopt;
      heard_[at] = std::move(*changed);
    }
    came_ = at + 1;
    return heard_[at];
  }

  [[nodiscard]] const Words& said() const noexcept { return said_; }
  [[nodiscard]] const Words& heard() const noexcept { return heard_; }
  /// The first `count` messages arrived as they were said, in all that a proof speaks for.
  [[nodiscard]] bool untouched(std::size_t count) const {
    if (came_ < count) return false;
    for (std::size_t i = 0; i < count; ++i)
      if (i == kAdmission ? admission_of(said_[i]) != admission_of(heard_[i])
                          : said_[i] != heard_[i])
        return false;
    return true;
  }
  /// The proof itself, whatever else stood in its message: only the server's proof speaks for that.
  [[nodiscard]] bool proof_untouched() const {
    const auto said = control::decode(said_[kProve]);
    const auto heard = control::decode(heard_[kProve]);
    return came_ > kProve && said && heard &&
           said->request().prove().proof() == heard->request().prove().proof();
  }

 private:
  std::optional<Bytes> change(std::size_t at, const Step& step, Bytes said) {
    Input input{reinterpret_cast<const std::uint8_t*>(step.bytes.data()), step.bytes.size()};
    switch (step.what % 12) {
      case 0: return said;
      case 1: {
        const std::size_t place = input.take<std::uint16_t>() % said.size();
        said[place] ^= std::byte{input.byte()};
        return said;
      }
      case 2: said.resize(input.take<std::uint16_t>() % (said.size() + 1)); return said;
      case 3: {
        const Bytes more = bytes_of(step.bytes);
        said.insert(said.end(), more.begin(), more.end());
        return said;
      }
      case 4: return bytes_of(step.bytes);
      case 5: return recorded_[at];          // replayed
      case 6: return said_[input.below(4)];  // reflected
      case 7: return std::nullopt;           // cut
      case 8: return with_words_of(said, recorded_[at]);
      case 9: return with_words_of(said, said_[input.below(4)]);
      case 10: return merged(said, step.bytes);
      default: return recorded_[input.below(4)];
    }
  }

  /// The message with the nonce, the proof and the welcome of another.
  static Bytes with_words_of(const Bytes& said, const Bytes& other) {
    auto envelope = control::decode(said);
    const auto from = control::decode(other);
    if (!envelope || !from) return said;
    const std::string& nonce = from->request().has_hello() ? from->request().hello().nonce()
                                                           : from->reply().challenge().nonce();
    const std::string& proof = from->request().has_prove() ? from->request().prove().proof()
                                                           : from->reply().prove().proof();
    if (envelope->request().has_hello())
      envelope->mutable_request()->mutable_hello()->set_nonce(nonce);
    if (envelope->reply().has_challenge())
      envelope->mutable_reply()->mutable_challenge()->set_nonce(nonce);
    if (envelope->request().has_prove())
      envelope->mutable_request()->mutable_prove()->set_proof(proof);
    if (envelope->reply().has_prove()) {
      envelope->mutable_reply()->mutable_prove()->set_proof(proof);
      if (from->reply().has_prove())
        *envelope->mutable_reply()->mutable_prove()->mutable_welcome() =
            from->reply().prove().welcome();
    }
    const auto bytes = control::encode(*envelope);
    return bytes ? *bytes : said;
  }

  /// Fields of the input's message put into that which was said: a version, an `auth`, a name.
  static Bytes merged(const Bytes& said, const std::string& fields) {
    auto envelope = control::decode(said);
    Envelope more;
    if (!envelope || !more.ParseFromString(fields)) return said;
    more.clear_magic();
    more.clear_id();
    envelope->MergeFrom(more);
    const auto bytes = control::encode(*envelope);
    return bytes ? *bytes : said;
  }

  const Script& script_;
  const Words& recorded_;
  std::size_t at_ = 0;
  std::size_t came_ = 0;
  Words said_;
  Words heard_;
};

/// A handshake of the client with that key and the server, with an attacker between them.
struct Outcome {
  bool server_admits = false;
  bool client_accepts = false;
};
Outcome shake_hands(Key key, Between& between) {
  Outcome outcome;
  const auto at_server = server().connect();
  const auto at_client = std::make_shared<ClientWire>([&](ClientWire& wire, Bytes said) {
    const auto asked = control::decode(said);
    auto heard = between.pass(std::move(said));
    if (heard) server().say(*at_server, std::move(*heard));
    bool answered = false;
    for (Bytes& answer : at_server->hear()) {
      if (admission_of(answer)) outcome.server_admits = true;
      auto passed = between.pass(std::move(answer));
      if (!passed) break;
      const auto reply = control::decode(*passed);
      answered = reply && reply->has_reply() && reply->id() == asked->id();
      wire.say(std::move(*passed));
    }
    // The client must not wait for an answer that does not come; it still reads what was sent.
    if (!answered) wire.hang_up();
  });
  outcome.client_accepts = client_accepts(key, at_client);
  at_server->hang_up();
  server().end_run();
  return outcome;
}

const Words& recorded() {
  static const Words s_recorded = [] {
    const Script nothing;
    const Words none;
    Between between{nothing, none};
    const Outcome outcome = shake_hands(Key::kCurrent, between);
    require(outcome.server_admits && outcome.client_accepts, "the right key lets in");
    return between.said();
  }();
  return s_recorded;
}

void fuzz_between(const Script& script) {
  const Key key{static_cast<std::uint8_t>(script.flags % kKeys)};
  Between between{script, recorded()};
  const Outcome outcome = shake_hands(key, between);
  if (outcome.server_admits)
    require(is_right("client", key) && between.untouched(2) && between.proof_untouched(),
            "a server lets in a client that knows the key, by the words that were said");
  if (outcome.client_accepts)
    require(is_right("client", key) && between.untouched(4),
            "a client accepts a server that knows the key, by what was said");
  if (is_right("client", key) && between.untouched(4) && between.said() == between.heard())
    require(outcome.server_admits && outcome.client_accepts, "the right key lets in");
  if (is_right("client", key) && between.untouched(3))
    require(outcome.server_admits, "the right key lets the client in");
}

/// A false client that sends any Hello, then a proof of any key over what was said, or of something
/// else.
void fuzz_false_client(const Script& script) {
  const auto wire = server().connect();
  const Key key{static_cast<std::uint8_t>(script.flags % kKeys)};
  const bool honest = (script.flags & 4U) == 0;
  std::string name;
  Transcript said;
  bool challenged = false;
  for (const Step& step : script.steps) {
    Envelope envelope;
    if (!envelope.ParseFromString(step.bytes)) envelope.Clear();
    envelope.set_magic(control::kMagic);
    envelope.set_id(envelope.id() + 1);
    const bool asks = step.what % 4 != 0 && !challenged;
    if (asks) {
      control::Hello& hello = *envelope.mutable_request()->mutable_hello();
      if (step.what % 4 == 2) {
        hello.set_auth(control::AUTH_KEYS);
        hello.set_version_newest(2);
        hello.set_client_name((step.what & 8U) != 0 ? "other" : "client");
      }
      if (step.what % 4 != 3) hello.set_nonce(std::string(32, static_cast<char>(step.what)));
      name = hello.client_name();
    } else if (challenged && honest) {
      const auto proof = said.proof(Transcript::Side::kClient, key_of(key)).value();
      envelope.mutable_request()->mutable_prove()->set_proof(
          std::string{reinterpret_cast<const char*>(proof.data()), proof.size()});
    }
    const auto bytes = control::encode(envelope);
    if (!bytes) continue;
    server().say(*wire, *bytes);
    bool admitted = false;
    for (const Bytes& answer : wire->hear()) {
      const auto reply = control::decode(answer);
      require(reply.ok() && reply->has_reply(), "a server says what can be read");
      require(!reply->reply().has_hello(), "a server with keys lets no client in without one");
      if (reply->reply().has_challenge()) {
        said = {};
        said.add(*bytes);
        said.add(answer);
      }
      admitted = reply->reply().has_prove();
      challenged = reply->reply().has_challenge();
      require(admitted || challenged || reply->reply().has_failure(),
              "a false client is told nothing");
    }
    if (admitted)
      require(is_right(name, key) && honest, "a server lets in a peer that knows the client's key");
    if (admitted || wire->shut()) break;
  }
  server().end_run();
}

/// A false server, or one that knows the key and says anything: the client takes its word by the
/// right proof only.
void fuzz_false_server(const Script& script) {
  const Key client_key{static_cast<std::uint8_t>(script.flags % kKeys)};
  const Key server_key{static_cast<std::uint8_t>(script.flags / 4 % kKeys)};
  Transcript said;
  bool proven = false;
  std::size_t at = 0;
  const auto wire = std::make_shared<ClientWire>([&](ClientWire& client, const Bytes& bytes) {
    if (at >= script.steps.size()) return client.hang_up();
    const Step& step = script.steps[at++];
    const auto asked = control::decode(bytes);
    require(asked && asked->has_request(), "a client asks in messages of ours");
    Envelope answer;
    if (!answer.ParseFromString(step.bytes)) answer.Clear();
    answer.set_magic(control::kMagic);
    answer.set_id(asked->id());
    said.add(bytes);
    if (asked->request().has_hello() && step.what % 4 != 0) {
      control::Challenge& challenge = *answer.mutable_reply()->mutable_challenge();
      if (step.what % 4 == 1) challenge.set_version(2);
      if (step.what % 4 != 3) challenge.set_nonce(std::string(32, static_cast<char>(step.what)));
      if (step.what == 7) challenge.set_nonce(asked->request().hello().nonce());
    }
    if (asked->request().has_prove()) {
      control::Admission& admission = *answer.mutable_reply()->mutable_prove();
      if (step.what % 4 == 1) {
        control::Welcome welcome;
        if (!welcome.ParseFromString(admission.welcome())) welcome.Clear();
        welcome.set_version(2);
        welcome.SerializeToString(admission.mutable_welcome());
      }
      said.add(admission.welcome());
      if (step.what % 4 != 0) {
        const auto side =
            (step.what & 16U) != 0 ? Transcript::Side::kClient : Transcript::Side::kServer;
        const auto proof = said.proof(side, key_of(server_key)).value();
        proven = side == Transcript::Side::kServer;
        admission.set_proof(std::string{reinterpret_cast<const char*>(proof.data()), proof.size()});
      }
    }
    const auto encoded = control::encode(answer);
    if (!encoded) return client.hang_up();
    if (asked->request().has_hello()) said.add(*encoded);
    client.say(*encoded);
    if (!answer.has_reply())
      client.hang_up();  // the client must not wait for an answer that does not come
  });
  if (client_accepts(client_key, wire))
    require(proven && client_key == server_key,
            "a client accepts a server that proves to know its key");
}

}  // namespace
}  // namespace remora::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return remora::fuzz::run_script(data, size, &remora::fuzz::fuzz_between,
                                  &remora::fuzz::fuzz_false_client,
                                  &remora::fuzz::fuzz_false_server);
}
