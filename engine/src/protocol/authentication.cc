#include "protocol/authentication.h"

#include <cerrno>
#include <limits>
#include <openssl/crypto.h>
#include <sys/random.h>

#include <remora/assert.h>

namespace remora::control {

Result<std::string> make_nonce() {
  std::string nonce(kNonceBytes, '\0');
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    return Error{Code::kSystem, "getrandom"}.with_errno(errno);
  return nonce;
}

std::string to_text(const Proof& proof) {
  return {reinterpret_cast<const char*>(proof.data()), proof.size()};
}

bool is_claimed(const Proof& proof, const std::string& claimed) noexcept {
  return claimed.size() == proof.size() &&
         CRYPTO_memcmp(proof.data(), claimed.data(), proof.size()) == 0;
}

Error not_authenticated() {
  return Error{Code::kConnectionRefused, "hello"}.with_reason(Reason::kAuthentication);
}

}  // namespace remora::control
