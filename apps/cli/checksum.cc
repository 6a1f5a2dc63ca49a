#include "cli/checksum.h"

#include <algorithm>
#include <openssl/evp.h>
#include <stdexcept>

namespace remora::apps {
namespace {

EVP_MD_CTX* typed(void* context) { return static_cast<EVP_MD_CTX*>(context); }

void check(int answer) {
  if (answer != 1) throw std::runtime_error{"OpenSSL cannot compute a checksum"};
}

const char* openssl_name(ChecksumKind kind) noexcept {
  switch (kind) {
    case ChecksumKind::kSha512: return "sha512";
    case ChecksumKind::kBlake2b: return "blake2b512";
    default: return "sha256";
  }
}

}  // namespace

std::string_view to_string(ChecksumKind kind) noexcept {
  switch (kind) {
    case ChecksumKind::kNone: return "none";
    case ChecksumKind::kSha256: return "sha256";
    case ChecksumKind::kSha512: return "sha512";
    case ChecksumKind::kBlake2b: return "blake2b";
  }
  return "none";
}

std::optional<ChecksumKind> parse_checksum_kind(std::string_view text) noexcept {
  for (const ChecksumKind kind : kChecksumKinds)
    if (to_string(kind) == text) return kind;
  return std::nullopt;
}

void Checksum::Free::operator()(void* context) const noexcept { EVP_MD_CTX_free(typed(context)); }

Result<Checksum> Checksum::make(ChecksumKind kind) {
  Context context{EVP_MD_CTX_new()};
  if (context == nullptr) return Error{Code::kOutOfMemory, "checksum"};
  const EVP_MD* const method = EVP_get_digestbyname(openssl_name(kind));
  if (method == nullptr || EVP_DigestInit_ex(typed(context.get()), method, nullptr) != 1)
    return Error{Code::kUnsupported, "checksum of OpenSSL"}.with_subject(to_string(kind));
  return Checksum{kind, std::move(context)};
}

void Checksum::update(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(typed(context_.get()), bytes.data(), bytes.size()));
}

void Checksum::update_zeroes(std::uint64_t length_bytes) {
  static constexpr std::array<std::byte, std::size_t{64} * 1024> kZeroes{};
  while (length_bytes > 0) {
    const std::size_t part = std::min<std::uint64_t>(length_bytes, kZeroes.size());
    update(std::span{kZeroes}.first(part));
    length_bytes -= part;
  }
}

std::string Checksum::digest() const {
  const Context copy{EVP_MD_CTX_new()};
  check(copy != nullptr ? 1 : 0);
  check(EVP_MD_CTX_copy_ex(typed(copy.get()), typed(context_.get())));
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned length = 0;
  check(EVP_DigestFinal_ex(typed(copy.get()), bytes.data(), &length));
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    text.push_back(kHexDigits[bytes[i] >> 4U]);
    text.push_back(kHexDigits[bytes[i] & 15U]);
  }
  return text;
}

}  // namespace remora::apps
