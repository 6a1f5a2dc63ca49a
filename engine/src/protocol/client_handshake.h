#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <remora/config/secret_key.h>
#include <remora/result.h>

#include "protocol/transcript.h"
#include "remora_control.pb.h"

namespace remora::control {

/// The client's part of the handshake, for one connection. `raw`: the whole Envelope of a message,
/// as it was sent or received. A local object of the thread that says hello.
class ClientHandshake {
 public:
  /// Draws the random number. Errors: kSystem.
  static Result<ClientHandshake> start(const config::SecretKey& key);
  /// Fills in the fields of a Hello with keys.
  void write(Hello& hello) const;
  void hello_sent(std::span<const std::byte> raw) { transcript_.add(raw); }
  /// Takes the answer to the Hello and makes the proof. Errors: kConnectionRefused with
  /// kAuthentication (the server does not ask for a proof, so it would give none either) or
  /// kVersion; kProtocol; kInternal.
  Result<ProveRequest> challenged(const Reply& reply, std::span<const std::byte> raw);
  void proof_sent(std::span<const std::byte> raw) { transcript_.add(raw); }
  /// Checks the server's proof. Errors: kConnectionRefused with kAuthentication (the server does
  /// not know the key); kProtocol; kInternal.
  Result<Welcome> admitted(const Admission& admission);

 private:
  ClientHandshake(const config::SecretKey& key, std::string nonce)
      : key_{key}, nonce_{std::move(nonce)} {}
  config::SecretKey key_;
  std::string nonce_;
  std::uint32_t version_ = 0;
  Transcript transcript_;
};

}  // namespace remora::control
