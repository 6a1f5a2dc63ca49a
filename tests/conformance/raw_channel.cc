#include "raw_channel.h"

#include <poll.h>
#include <utility>

#include <remora/engine/uri.h>

#include "base/clock.h"
#include "support/eventually.h"
#include "transport/connect.h"

namespace remora::test {

using namespace std::chrono_literals;

RawChannel::RawChannel(const ServerAddress& server, TransportKind transport) {
  Uri uri;
  uri.host = server.host;
  uri.port = server.port;
  uri.transport = transport;
  const Deadline deadline = Clock::now() + 10s;
  endpoint_ = transport == TransportKind::kShm ? transport::connect_shm(uri, deadline).value()
                                               : transport::connect_tcp(uri, {}, deadline).value();
}

RawChannel::~RawChannel() { endpoint_->shutdown(); }

void RawChannel::say(Bytes bytes) {
  // That the server has hung up shows in what is heard.
  (void)endpoint_->send({.bytes = std::move(bytes), .descriptors = {}}, Clock::now() + 10s);
}

std::optional<Bytes> RawChannel::hear(std::chrono::nanoseconds patience) {
  for (Patience left{patience}; !left.over();) {
    auto message = endpoint_->receive();
    if (!message) return std::nullopt;
    if (message->has_value()) return std::move((*message)->bytes);
    pollfd event{.fd = endpoint_->event_fd(), .events = POLLIN, .revents = 0};
    ::poll(&event, 1, 50);
  }
  return std::nullopt;
}

bool RawChannel::ended(std::chrono::nanoseconds patience) {
  for (Patience left{patience}; !left.over();) {
    if (!endpoint_->receive().ok()) return true;
    pollfd event{.fd = endpoint_->event_fd(), .events = POLLIN, .revents = 0};
    ::poll(&event, 1, 50);
  }
  return false;
}

Bytes RawChannel::request(const control::Request& body, std::uint64_t id) {
  control::Envelope envelope;
  envelope.set_magic(control::kMagic);
  envelope.set_id(id);
  *envelope.mutable_request() = body;
  return control::encode(envelope).value();
}

control::Request RawChannel::hello(const std::string& name,
                                   const control::ClientHandshake& handshake) {
  control::Request request;
  control::Hello& hello = *request.mutable_hello();
  hello.set_version_oldest(control::kVersionOldest);
  hello.set_version_newest(control::kVersionNewest);
  hello.set_client_name(name);
  handshake.write(hello);
  return request;
}

RawChannel::Recorded RawChannel::shake_hands(const std::string& name, const config::SecretKey& key,
                                             Leaves leaves) {
  Recorded recorded;
  auto handshake = control::ClientHandshake::start(key).value();
  control::Request said = hello(name, handshake);
  said.mutable_hello()->set_comes_back(leaves == Leaves::kMayComeBack);
  recorded.hello = request(said, 1);
  handshake.hello_sent(recorded.hello);
  const auto challenge = ask(recorded.hello);
  if (!challenge) return recorded;
  recorded.challenge = *challenge;
  const auto envelope = control::decode(*challenge).value();
  const auto proof = handshake.challenged(envelope.reply(), *challenge);
  if (!proof) return recorded;
  control::Request prove;
  *prove.mutable_prove() = *proof;
  recorded.prove = request(prove, 2);
  auto admission = ask(recorded.prove);
  if (lets_in(admission)) recorded.admission = std::move(admission);
  return recorded;
}

bool lets_in(const std::optional<Bytes>& answer) {
  if (!answer) return false;
  const auto envelope = control::decode(*answer);
  return envelope && envelope->has_reply() &&
         (envelope->reply().has_prove() || envelope->reply().has_hello());
}

std::optional<Error> failure_of(const std::optional<Bytes>& answer) {
  if (!answer) return std::nullopt;
  const auto envelope = control::decode(*answer);
  if (!envelope || !envelope->reply().has_failure()) return std::nullopt;
  return control::to_error(envelope->reply().failure(), "raw");
}

}  // namespace remora::test
