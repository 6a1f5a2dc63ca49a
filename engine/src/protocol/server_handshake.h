#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <remora/config/secret_key.h>
#include <remora/result.h>

#include "protocol/transcript.h"
#include "remora_control.pb.h"

namespace remora::control {

/// The server's part of the handshake, for one connection. `raw`: the whole Envelope of a message,
/// as it was sent or received. The connection that is being admitted owns it. One thread at a time.
class ServerHandshake {
 public:
  /// The keys of a client. For a key that the client does not have, prove() uses a random one.
  struct Keys {
    std::optional<config::SecretKey> current{};
    std::optional<config::SecretKey> previous{};
  };
  /// For a Hello with AUTH_KEYS. Errors: kConnectionRefused with kVersion, or with kAuthentication
  /// (no name, no nonce); kSystem.
  static Result<ServerHandshake> start(const Hello& hello, std::span<const std::byte> raw,
                                       std::uint32_t version_newest);
  [[nodiscard]] const std::string& client_name() const noexcept { return client_name_; }
  [[nodiscard]] std::uint32_t version() const noexcept { return version_; }
  [[nodiscard]] const Hello& hello() const noexcept { return hello_; }
  [[nodiscard]] Challenge challenge() const;
  void challenge_sent(std::span<const std::byte> raw) { transcript_.add(raw); }
  /// Checks the client's proof against both keys, also if the client has one key or none. Errors:
  /// kConnectionRefused with kAuthentication; kInternal.
  Status prove(const ProveRequest& request, std::span<const std::byte> raw, const Keys& keys);
  /// After prove(): the key that the client has proven to know.
  [[nodiscard]] const std::optional<config::SecretKey>& proven_key() const noexcept { return key_; }
  /// After prove(): the Welcome with the server's proof. Errors: kInternal.
  Result<Admission> admit(const Welcome& welcome);

 private:
  ServerHandshake() = default;
  Hello hello_;
  std::string client_name_;
  std::string nonce_;
  std::uint32_t version_ = 0;
  std::optional<config::SecretKey> key_;
  Transcript transcript_;
};

}  // namespace remora::control
