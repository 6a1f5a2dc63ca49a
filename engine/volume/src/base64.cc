#include "base64.h"

#include <climits>
#include <cstddef>
#include <openssl/evp.h>

#include <remora/assert.h>

namespace remora::volume {
namespace {

// EVP_EncodeBlock() and EVP_DecodeBlock() count in int.
constexpr std::size_t kTextMax = std::size_t{INT_MAX};
constexpr std::size_t kPlainMax = kTextMax / 4 * 3 - 3;

const unsigned char* octets(std::string_view bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* octets(std::string& bytes) noexcept {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

}  // namespace

std::string to_base64(std::string_view bytes) {
  REMORA_ASSERT(bytes.size() <= kPlainMax, "keys and values of a cluster are short");
  std::string text((bytes.size() + 2) / 3 * 4, '\0');  // the zero behind it overwrites that of text
  EVP_EncodeBlock(octets(text), octets(bytes), static_cast<int>(bytes.size()));
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0 || text.size() > kTextMax) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && text.size() > padding && text[text.size() - 1 - padding] == '=') ++padding;
  // EVP_DecodeBlock() takes '=' for a zero anywhere, and skips blanks and '-' at the ends.
  if (text.substr(0, text.size() - padding).find('=') != std::string_view::npos)
    return std::nullopt;
  std::string bytes(text.size() / 4 * 3, '\0');
  const int length = EVP_DecodeBlock(octets(bytes), octets(text), static_cast<int>(text.size()));
  if (length < 0 || static_cast<std::size_t>(length) != bytes.size()) return std::nullopt;
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace remora::volume
