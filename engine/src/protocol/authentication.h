#pragma once

/// Mutual authentication: client and server prove that they know the client's key, by HMAC-SHA256
/// over fresh random numbers of both sides and all messages of the handshake.
///
/// | step | message | what it says |
/// |---|---|---|
/// | 1 | client: Hello | versions, AUTH_KEYS, the client's name, 32 random bytes |
/// | 2 | server: Challenge | the version chosen, 32 random bytes; the same for names that it does
/// not know | | 3 | client: ProveRequest | proof C | | 4 | server: Admission | a serialised
/// Welcome, and proof S |
///
///     C = HMAC-SHA256(key, "remora client 2" | Hello | Challenge)
///     S = HMAC-SHA256(key, "remora server 2" | Hello | Challenge | ProveRequest | Welcome)
///
/// Each part, the label too, goes in with its length before it:
///
/// | bytes | what |
/// |---|---|
/// | 4 | length of the part, little endian |
/// | length | the part: of a message the whole Envelope, byte by byte as it was sent or received |
///
/// The client proves first, so that an unauthenticated client gets no proof to try keys on. What is
/// said again later does not fit the other side's new random number (replay); C and S begin with
/// different labels, and S covers C (reflection); any byte that was changed, added or left out
/// changes both (truncation, and downgrade: the versions and the way to prove stand in Hello).
/// A name that is not known costs the server the same work and gets the same answer as a wrong key.
/// What is not covered: messages after the Admission, and failures, which an attacker on the
/// path can forge to keep a client out. Nothing is encrypted.
///
/// Thread safety: an object belongs to one thread at a time.

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <remora/config/secret_key.h>
#include <remora/result.h>

#include "remora_control.pb.h"

namespace remora::control {

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kProofBytes = 32;
/// The first version that knows keys.
inline constexpr std::uint32_t kVersionOfKeys = 2;

using Proof = std::array<std::byte, kProofBytes>;

/// The messages of the handshake so far. Messages are at most 16 KiB each, and there are few.
class Transcript {
 public:
  enum class Side : std::uint8_t { kClient, kServer };
  void add(std::span<const std::byte> part);
  void add(std::string_view part) { add(std::as_bytes(std::span{part})); }
  /// Errors: kInternal: OpenSSL cannot compute it.
  [[nodiscard]] Result<Proof> proof(Side side, const config::SecretKey& key) const;

 private:
  std::vector<std::byte> parts_;
};

/// 32 unpredictable bytes. Errors: kSystem. Source: getrandom(2).
Result<std::string> make_nonce();

/// The client's part. Raw bytes are those of whole envelopes.
class ClientHandshake {
 public:
  /// Errors: kSystem.
  static Result<ClientHandshake> start(const config::SecretKey& key);
  /// Fills in what a Hello with keys says.
  void write(Hello& hello) const;
  void hello_sent(std::span<const std::byte> raw) { transcript_.add(raw); }
  /// The answer to the Hello, as it came. Errors: kConnectionRefused, kAuthentication: the server
  /// asks for no proof, and so has none to give; kProtocol.
  Result<ProveRequest> challenged(const Reply& reply, std::span<const std::byte> raw);
  void proof_sent(std::span<const std::byte> raw) { transcript_.add(raw); }
  /// The Welcome, of a server that knows the key. Errors: kConnectionRefused, kAuthentication: it
  /// does not; kProtocol.
  Result<Welcome> admitted(const Admission& admission);

 private:
  ClientHandshake(const config::SecretKey& key, std::string nonce)
      : key_{key}, nonce_{std::move(nonce)} {}
  config::SecretKey key_;
  std::string nonce_;
  std::uint32_t version_ = 0;
  Transcript transcript_;
};

/// The server's part.
class ServerHandshake {
 public:
  /// The keys of a client; those that it has not got are random.
  struct Keys {
    std::optional<config::SecretKey> current{};
    std::optional<config::SecretKey> previous{};
  };
  /// For a Hello with AUTH_KEYS. Errors: kConnectionRefused with kVersion or kAuthentication (no
  /// name, no nonce); kSystem.
  static Result<ServerHandshake> start(const Hello& hello, std::span<const std::byte> raw,
                                       std::uint32_t version_newest);
  [[nodiscard]] const std::string& client_name() const noexcept { return client_name_; }
  [[nodiscard]] std::uint32_t version() const noexcept { return version_; }
  [[nodiscard]] const Hello& hello() const noexcept { return hello_; }
  [[nodiscard]] Challenge challenge() const;
  void challenge_sent(std::span<const std::byte> raw) { transcript_.add(raw); }
  /// Whether the client knows one of the keys. Both are tried, also where there is one or none.
  /// Errors: kConnectionRefused, kAuthentication; kInternal.
  Status prove(const ProveRequest& request, std::span<const std::byte> raw, const Keys& keys);
  /// After prove(): the one that the client has proven to know.
  [[nodiscard]] const std::optional<config::SecretKey>& proven_key() const noexcept { return key_; }
  /// After prove(). Errors: kInternal.
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
