#pragma once

/// Peers over rdma that go while they connect, at each step of it, or say nothing: by the verbs
/// layer and by the engine's own transport seam.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <poll.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <remora/metrics/registry.h>
#include <remora/remora.h>
#include <remora/verbs/verbs.h>

#include "protocol/messages.h"
#include "support/pattern.h"
#include "support/server.h"
#include "transport/connect.h"
#include "transport/listen.h"
#include "transport/rdma/wire.h"

namespace remora::fault {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace): literals only
using transport::rdma::Introduction;

/// How far a client gets before it goes.
enum class ClientStep : std::uint8_t {
  kResolved,
  kHasQueuePair,
  kRequestSent,  // the connection request is on its way, or just answered
  kEstablished,
  kHalfHello,
  kHelloSent,
  kWelcomed,
  kGranted,
  kLaneSent,      // the lane's request is on its way
  kLane,          // one lane is there
  kBetweenLanes,  // and another on its way
  kCount
};

/// A client that does as much as it is told, and goes without a goodbye.
class CraftyClient {
 public:
  explicit CraftyClient(const std::string& uri) : uri_{Uri::parse(uri).value()} {}

  /// Throws Exception where a step fails that should not.
  void go(ClientStep last, std::chrono::microseconds pause) {
    if (last < ClientStep::kEstablished) return connect_by_hand(last, pause);
    endpoint_ = transport::connect_rdma(uri_, {}, soon()).value();
    if (last == ClientStep::kEstablished) return;
    say_hello(last);
    if (last < ClientStep::kWelcomed) return;
    const control::Welcome welcome = hear().reply().hello();
    ticket_ = {.session_id = welcome.session_id(), .secret = welcome.lane_secret()};
    if (last == ClientStep::kWelcomed) return;
    if (last == ClientStep::kGranted) return open_region();
    if (last >= ClientStep::kLane) lane_ = endpoint_->open_lane(ticket_, 16, soon()).value();
    if (last != ClientStep::kLane) begin_lane(pause);
  }

 private:
  static Deadline soon() { return std::chrono::steady_clock::now() + 10s; }

  [[nodiscard]] verbs::Connector resolve() const {
    return verbs::Connector::resolve(verbs::Address::parse(uri_.host, uri_.port).value(), soon())
        .value();
  }
  void add_queue_pair(verbs::Connector& connector) {
    domain_ = connector.device().allocate_domain().value();
    queue_ = connector.device().create_completion_queue({.depth = 8}).value();
    verbs::QueuePairBuilder<verbs::Rc> builder{domain_, queue_, queue_};
    connector.create_queue_pair(builder.send_depth(4).receive_depth(4)).value();
  }
  void connect_by_hand(ClientStep last, std::chrono::microseconds pause) {
    verbs::Connector connector = resolve();
    if (last == ClientStep::kResolved) return;
    add_queue_pair(connector);
    if (last == ClientStep::kHasQueuePair) return;
    const auto introduction = Introduction{}.to_wire();
    const auto begun = connector.start_connect({.private_data = introduction}).value();
    std::this_thread::sleep_for(pause);
  }
  void begin_lane(std::chrono::microseconds pause) {
    verbs::Connector connector = resolve();
    add_queue_pair(connector);
    const auto introduction =
        Introduction{.purpose = transport::rdma::Purpose::kLane, .ticket = ticket_}.to_wire();
    const auto begun = connector.start_connect({.private_data = introduction}).value();
    std::this_thread::sleep_for(pause);
  }
  void say(const control::Request& body, std::size_t max_bytes = SIZE_MAX) {
    control::Envelope envelope;
    envelope.set_magic(control::kMagic);
    envelope.set_id(++id_);
    *envelope.mutable_request() = body;
    std::vector<std::byte> bytes = control::encode(envelope).value();
    bytes.resize(std::min(bytes.size(), max_bytes));
    endpoint_->send({.bytes = std::move(bytes), .descriptors = {}}, soon()).value();
  }
  void say_hello(ClientStep last) {
    control::Request request;
    control::Hello& hello = *request.mutable_hello();
    hello.set_version_oldest(control::kVersionOldest);
    hello.set_version_newest(control::kVersionNewest);
    hello.set_auth(control::AUTH_NONE);
    hello.set_client_name("crafty");
    say(request, last == ClientStep::kHalfHello ? 7 : SIZE_MAX);
  }
  void open_region() {
    control::Request request;
    request.mutable_open()->set_name("t1");
    request.mutable_open()->set_rights(static_cast<std::uint32_t>(Rights::kAll));
    say(request);
    (void)hear();
  }
  control::Envelope hear() {
    for (const Deadline until = soon(); std::chrono::steady_clock::now() < until;) {
      auto message = endpoint_->receive().value();
      if (message) return control::decode(message->bytes).value();
      pollfd event{.fd = endpoint_->event_fd(), .events = POLLIN, .revents = 0};
      ::poll(&event, 1, 50);
    }
    throw Exception{Error{Code::kTimedOut, "crafty client"}};
  }

  Uri uri_;
  std::uint64_t id_ = 0;
  transport::LaneTicket ticket_;
  verbs::ProtectionDomain domain_;
  verbs::CompletionQueue queue_;
  std::unique_ptr<transport::ClientEndpoint> endpoint_;
  std::unique_ptr<transport::Lane> lane_;
};

/// What a server does to a client that connects.
enum class ServerStep : std::uint8_t {
  kNeverTakes,    // the request waits in the kernel
  kNeverAnswers,  // it was taken, and that is all
  kRejects,
  kAcceptsAndGoes,
  kStaysSilent,
  kSaysNonsense,
  kGoesAfterHello,
  kRejectsLanes,
  kNeverTakesLanes,
  kGoesBetweenLanes,
  kCount
};

[[nodiscard]] inline bool is_silent(ServerStep step) {
  return step == ServerStep::kNeverTakes || step == ServerStep::kNeverAnswers ||
         step == ServerStep::kStaysSilent || step == ServerStep::kNeverTakesLanes;
}

/// A server that does so, in a thread of its own.
class CraftyServer {
 public:
  CraftyServer(const std::string& address, ServerStep step, std::chrono::milliseconds pause)
      : step_{step}, pause_{pause} {
    if (step_ <= ServerStep::kRejects) {
      by_hand_.emplace(
          verbs::ConnectionListener::bind(verbs::Address::parse(address, 0).value()).value());
      port_ = by_hand_->local_address().port();
    } else {
      config::ServerConfig config = test::server_config(TransportKind::kRdma);
      const transport::ListenAddress listen{
          config.listen.address, {verbs::Address::parse(config.listen.address, 0).value()}};
      listener_ =
          transport::listen_rdma(config, listen, metrics::Registry::create().value()).value();
      port_ = listener_->port();
    }
    thread_ = std::thread{[this] { serve(); }};
  }
  ~CraftyServer() {
    stop_ = true;
    thread_.join();
  }
  CraftyServer(const CraftyServer&) = delete;
  CraftyServer& operator=(const CraftyServer&) = delete;

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

 private:
  struct Peer {
    std::unique_ptr<transport::ServerEndpoint> endpoint;
    std::chrono::steady_clock::time_point goes_at = std::chrono::steady_clock::time_point::max();
    bool told = false;
  };

  void serve() {
    std::vector<verbs::ConnectionRequest> held;
    while (!stop_) {
      if (by_hand_)
        take_by_hand(held);
      else
        take();
      std::this_thread::sleep_for(1ms);
    }
    peers_.clear();
  }
  void take_by_hand(std::vector<verbs::ConnectionRequest>& held) {
    if (step_ == ServerStep::kNeverTakes) return;
    auto request = by_hand_->next_request();
    if (!request || !request->has_value()) return;
    if (step_ == ServerStep::kNeverAnswers) held.push_back(std::move(**request));
  }
  void take() {
    if (step_ != ServerStep::kNeverTakesLanes || peers_.empty())
      if (auto arrived = listener_->accept())
        for (auto& endpoint : *arrived)
          if (step_ != ServerStep::kAcceptsAndGoes)
            peers_.push_back({.endpoint = std::move(endpoint)});
    std::erase_if(peers_, [this](Peer& peer) { return is_done_with(peer); });
  }
  bool is_done_with(Peer& peer) {
    if (std::chrono::steady_clock::now() >= peer.goes_at) return true;
    if (step_ == ServerStep::kStaysSilent) return false;
    const auto message = peer.endpoint->receive();
    if (!message) return true;
    if (step_ == ServerStep::kSaysNonsense) {
      if (!std::exchange(peer.told, true)) (void)peer.endpoint->send({test::noise(100, 7), {}});
      return false;
    }
    if (!message->has_value() || peer.told) return false;
    if (step_ == ServerStep::kGoesAfterHello) return true;
    peer.told = true;
    welcome(*peer.endpoint, control::decode((*message)->bytes).value().id());
    if (step_ == ServerStep::kGoesBetweenLanes)
      peer.goes_at = std::chrono::steady_clock::now() + pause_;
    return false;
  }
  void welcome(transport::ServerEndpoint& endpoint, std::uint64_t id) const {
    constexpr transport::LaneTicket kTicket{.session_id = 5, .secret = 6};
    control::Envelope envelope;
    envelope.set_magic(control::kMagic);
    envelope.set_id(id);
    control::Welcome& welcome = *envelope.mutable_reply()->mutable_hello();
    welcome.set_version(control::kVersionNewest);
    welcome.set_boot_id(1);
    welcome.set_memory_id(2);
    welcome.set_session_id(kTicket.session_id);
    welcome.set_lane_secret(kTicket.secret);
    welcome.set_lease_ms(10'000);
    welcome.set_keep_ms(10'000);
    if (step_ == ServerStep::kGoesBetweenLanes) endpoint.expect_lanes(kTicket);
    (void)endpoint.send({control::encode(envelope).value(), {}});
  }

  const ServerStep step_;
  const std::chrono::milliseconds pause_;
  std::optional<verbs::ConnectionListener> by_hand_;
  std::unique_ptr<transport::Listener> listener_;
  std::uint16_t port_ = 0;
  std::vector<Peer> peers_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace remora::fault
