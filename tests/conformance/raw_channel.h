#pragma once

/// A control channel without a client behind it: bytes of the caller's choice, over tcp.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <remora/config/secret_key.h>
#include <remora/engine/types.h>

#include "protocol/authentication.h"
#include "protocol/messages.h"
#include "support/transport.h"
#include "transport/client_endpoint.h"

namespace remora::test {

using Bytes = std::vector<std::byte>;

/// Connected, and has said nothing yet. Functions throw Exception where the connection cannot be
/// made; a server that hangs up is an answer.
class RawChannel {
 public:
  /// Over tcp or shm.
  explicit RawChannel(const ServerAddress& server, TransportKind transport = TransportKind::kTcp);
  ~RawChannel();
  RawChannel(const RawChannel&) = delete;
  RawChannel& operator=(const RawChannel&) = delete;

  void say(Bytes bytes);
  /// The next message, or nothing: the server has hung up, or `patience` is over.
  std::optional<Bytes> hear(std::chrono::nanoseconds patience = std::chrono::seconds{10});
  std::optional<Bytes> ask(Bytes bytes) {
    say(std::move(bytes));
    return hear();
  }
  /// The server hangs up, within `patience`.
  [[nodiscard]] bool ended(std::chrono::nanoseconds patience = std::chrono::seconds{10});
  [[nodiscard]] transport::ClientEndpoint& endpoint() noexcept { return *endpoint_; }

  /// One request as an envelope.
  static Bytes request(const control::Request& body, std::uint64_t id);
  /// A Hello with keys; whoever makes it says who it is.
  static control::Request hello(const std::string& name, const control::ClientHandshake& handshake);

  /// The four messages of a handshake with this key; null where the server refused.
  struct Recorded {
    Bytes hello;
    Bytes challenge;
    Bytes prove;
    std::optional<Bytes> admission;
  };
  /// Whether the server keeps the session when the connection is lost.
  enum class Leaves : std::uint8_t { kForGood, kMayComeBack };
  Recorded shake_hands(const std::string& name, const config::SecretKey& key,
                       Leaves leaves = Leaves::kForGood);

 private:
  std::unique_ptr<transport::ClientEndpoint> endpoint_;
};

/// Whether a message lets a client in: an Admission, or a Welcome.
[[nodiscard]] bool lets_in(const std::optional<Bytes>& answer);
/// The failure in a message; nothing where there is none.
[[nodiscard]] std::optional<Error> failure_of(const std::optional<Bytes>& answer);

}  // namespace remora::test
