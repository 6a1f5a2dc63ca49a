#include "cli/sha256.h"

#include <array>
#include <openssl/evp.h>
#include <stdexcept>

namespace remora::apps {
namespace {

EVP_MD_CTX* typed(void* context) { return static_cast<EVP_MD_CTX*>(context); }

void check(int answer) {
  if (answer != 1) throw std::runtime_error{"OpenSSL cannot compute SHA-256"};
}

}  // namespace

void Sha256::Free::operator()(void* context) const noexcept { EVP_MD_CTX_free(typed(context)); }

Sha256::Sha256() : context_{EVP_MD_CTX_new()} {
  check(EVP_DigestInit_ex(typed(context_.get()), EVP_sha256(), nullptr));
}

void Sha256::update(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(typed(context_.get()), bytes.data(), bytes.size()));
}

std::string Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  check(EVP_DigestFinal_ex(typed(context_.get()), digest.data(), &length));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    text.push_back(kDigits[digest[i] >> 4U]);
    text.push_back(kDigits[digest[i] & 15U]);
  }
  return text;
}

}  // namespace remora::apps
