#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <remora/config/secret_key.h>
#include <remora/result.h>

#include "protocol/authentication.h"

namespace remora::control {

/// The messages of a handshake so far: a few, each of at most 16 KiB. A part of either handshake.
/// One thread at a time.
class Transcript {
 public:
  enum class Side : std::uint8_t { kClient, kServer };
  void add(std::span<const std::byte> part);
  void add(std::string_view part) { add(std::as_bytes(std::span{part})); }
  /// The proof of one side over the messages so far. Errors: kInternal (OpenSSL cannot compute it).
  [[nodiscard]] Result<Proof> proof(Side side, const config::SecretKey& key) const;

 private:
  std::vector<std::byte> parts_;
};

}  // namespace remora::control
