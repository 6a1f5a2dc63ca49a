#include "protocol/transcript.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <remora/assert.h>

namespace remora::control {

using config::SecretKey;

namespace {

constexpr std::string_view kClientLabel = "remora client 2";
constexpr std::string_view kServerLabel = "remora server 2";

void append_part(std::vector<std::byte>& to, std::span<const std::byte> part) {
  REMORA_ASSERT(part.size() <= std::numeric_limits<std::uint32_t>::max(),
                "the length of a part of a transcript fits its four bytes");
  const auto length = static_cast<std::uint32_t>(part.size());
  for (unsigned shift = 0; shift < 32; shift += 8)
    to.push_back(static_cast<std::byte>((length >> shift) & 0xffU));
  to.insert(to.end(), part.begin(), part.end());
}

}  // namespace

void Transcript::add(std::span<const std::byte> part) { append_part(parts_, part); }

Result<Proof> Transcript::proof(Side side, const SecretKey& key) const {
  const std::string_view label = side == Side::kClient ? kClientLabel : kServerLabel;
  std::vector<std::byte> said;
  said.reserve(4 + label.size() + parts_.size());
  append_part(said, std::as_bytes(std::span{label}));
  said.insert(said.end(), parts_.begin(), parts_.end());
  Proof proof{};
  unsigned length = 0;
  const auto bytes = key.bytes();
  const unsigned char* const done =
      ::HMAC(::EVP_sha256(), bytes.data(), static_cast<int>(bytes.size()),
             reinterpret_cast<const unsigned char*>(said.data()), said.size(),
             reinterpret_cast<unsigned char*>(proof.data()), &length);
  if (done == nullptr || length != proof.size()) return Error{Code::kInternal, "HMAC-SHA256"};
  return proof;
}

}  // namespace remora::control
