#pragma once

/// Connections within one process: a listener and a client, both event driven.

#include <algorithm>
#include <cstring>
#include <functional>

#include "rxe_fixture.h"

namespace remora::test {

/// Bytes of a text, for private data.
inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}
/// The text at the front of padded private data.
inline std::string text_of(std::span<const std::byte> bytes) {
  std::string text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  return text.substr(0, text.find('\0'));
}

class VerbsConnection : public RxeTest {
 protected:
  /// A resolved client with a queue pair, to `listener`.
  struct Client {
    verbs::Connector connector;
    Rig rig;
  };
  /// Sets what a test wants of a queue pair.
  using Adjust = std::function<void(verbs::QueuePairBuilder<verbs::Rc>&)>;
  Result<Client> client(const verbs::Address& peer, const Adjust& adjust = {}) {
    auto connector = verbs::Connector::resolve(peer, soon(), {.source = {}, .ack_timeout = 18});
    if (!connector) return connector.error();
    auto rig = Rig::create(connector->device());
    if (!rig) return rig.error();
    auto builder = rig->builder();
    if (adjust) adjust(builder);
    if (const Status made = connector->create_queue_pair(builder); !made) return made.error();
    return Client{std::move(*connector), std::move(*rig)};
  }

  /// Both ends, established.
  struct Link {
    Rig client_rig;
    Rig server_rig;
    verbs::Connection client;
    verbs::Connection server;
    std::uint8_t asked_initiator_depth;  ///< as the client's request says
    std::uint8_t asked_responder_depth;
  };
  Result<Link> link(verbs::ConnectionListener& listener, const Adjust& of_client = {},
                    const Adjust& of_server = {}) {
    auto side = client(listener.local_address().port() == 0 ? address() : to(listener), of_client);
    if (!side) return side.error();
    auto connection = side->connector.start_connect({.private_data = bytes_of("hello")});
    if (!connection) return connection.error();
    auto request = listener.wait_request(soon());
    if (!request) return request.error();
    auto rig = Rig::create(request->device());
    if (!rig) return rig.error();
    auto builder = rig->builder();
    if (of_server) of_server(builder);
    if (const Status made = request->create_queue_pair(builder); !made) return made.error();
    const std::uint8_t initiator_depth = request->peer_initiator_depth();
    const std::uint8_t responder_depth = request->peer_responder_depth();
    auto server = std::move(*request).accept({.private_data = bytes_of("welcome")});
    if (!server) return server.error();
    if (const Status up = connection->wait_established(soon()); !up) return up.error();
    if (const Status up = server->wait_established(soon()); !up) return up.error();
    return Link{std::move(side->rig), std::move(*rig), std::move(*connection),
                std::move(*server),   initiator_depth, responder_depth};
  }
  [[nodiscard]] verbs::Address to(const verbs::ConnectionListener& listener) const {
    return address(listener.local_address().port());
  }
  [[nodiscard]] Result<verbs::ConnectionListener> listen() const {
    return verbs::ConnectionListener::bind(address());
  }
};

}  // namespace remora::test
