#pragma once

/// A control channel without the client library: it sends bytes of the caller's choice.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <remora/config/secret_key.h>
#include <remora/engine/types.h>

#include "protocol/client_handshake.h"
#include "protocol/messages.h"
#include "support/transport.h"
#include "transport/client_endpoint.h"

namespace remora::test {

using Bytes = std::vector<std::byte>;

/// A connection that has sent nothing yet. Functions throw Exception if the connection cannot be
/// made, but not when the server hangs up.
class RawChannel {
 public:
  /// Connects over tcp or shm.
  explicit RawChannel(const ServerAddress& server, TransportKind transport = TransportKind::kTcp);
  ~RawChannel();
  RawChannel(const RawChannel&) = delete;
  RawChannel& operator=(const RawChannel&) = delete;

  void say(Bytes bytes);
  /// The next message. None: the server has hung up, or `patience` is over.
  std::optional<Bytes> hear(std::chrono::nanoseconds patience = std::chrono::seconds{10});
  std::optional<Bytes> ask(Bytes bytes) {
    say(std::move(bytes));
    return hear();
  }
  /// Whether the server hangs up within `patience`.
  [[nodiscard]] bool ended(std::chrono::nanoseconds patience = std::chrono::seconds{10});
  [[nodiscard]] transport::ClientEndpoint& endpoint() noexcept { return *endpoint_; }

  /// An envelope with one request.
  static Bytes request(const control::Request& body, std::uint64_t id);
  /// A Hello of a client with a key, and this name.
  static control::Request hello(const std::string& name, const control::ClientHandshake& handshake);

  /// The four messages of a handshake. `admission` is null when the server has refused the client.
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

/// Whether a message admits a client: it is an Admission, or a Welcome.
[[nodiscard]] bool lets_in(const std::optional<Bytes>& answer);
/// The failure in a message. None: the message has no failure.
[[nodiscard]] std::optional<Error> failure_of(const std::optional<Bytes>& answer);

}  // namespace remora::test
