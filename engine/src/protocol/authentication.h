#pragma once

/// Mutual authentication: client and server prove to each other that they know the client's key. A
/// proof is an HMAC-SHA256 over random numbers of both sides and all messages of the handshake.
///
/// | step | message | contents |
/// |---|---|---|
/// | 1 | client: Hello | versions, AUTH_KEYS, the client's name, 32 random bytes |
/// | 2 | server: Challenge | the chosen version, 32 random bytes; also for unknown names |
/// | 3 | client: ProveRequest | proof C |
/// | 4 | server: Admission | a serialised Welcome, and proof S |
///
///     C = HMAC-SHA256(key, "remora client 2" | Hello | Challenge)
///     S = HMAC-SHA256(key, "remora server 2" | Hello | Challenge | ProveRequest | Welcome)
///
/// Each part, also the label, is preceded by its length:
///
/// | bytes | contents |
/// |---|---|
/// | 4 | length of the part, little endian |
/// | length | the part; of a message its whole Envelope, as it was sent or received |
///
/// The client proves first, so that an unauthenticated client receives no proof with which it could
/// test keys. A message that an attacker repeats later does not fit the other side's new random
/// number (replay). C and S begin with different labels, and S covers C (reflection). Each byte
/// that an attacker changes, adds or removes changes both proofs (truncation and downgrade: Hello
/// contains the versions and the kind of authentication). For an unknown name the server does the
/// same work and gives the same answer as for a wrong key. The proofs cover neither messages after
/// the Admission nor failures: an attacker on the path can forge failures and so keep a client out.
/// Nothing is encrypted.
///
/// Thread safety: one thread at a time may use an object of the handshake.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <remora/result.h>

namespace remora::control {

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kProofBytes = 32;
/// The first protocol version with keys.
inline constexpr std::uint32_t kVersionOfKeys = 2;

using Proof = std::array<std::byte, kProofBytes>;

/// 32 unpredictable bytes. Errors: kSystem. Source: getrandom(2).
Result<std::string> make_nonce();

/// `proof` as a message carries it.
[[nodiscard]] std::string to_text(const Proof& proof);
/// Whether `claimed`, from a message, is `proof`. The time does not depend on the first byte that
/// differs.
[[nodiscard]] bool is_claimed(const Proof& proof, const std::string& claimed) noexcept;
/// The Error for a peer that does not prove to know the key.
[[nodiscard]] Error not_authenticated();

}  // namespace remora::control
