#include "access_check.h"

#include <algorithm>
#include <httplib.h>
#include <openssl/crypto.h>

#include "ascii.h"

namespace remora::metrics {
namespace {

constexpr std::size_t kCredentialBytesMax = 1'024;
constexpr std::string_view kBearer = "Bearer ";
constexpr std::string_view kBasic = "Basic ";

bool is_printable(std::string_view text, bool spaces) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte > 0x20 ? byte != 0x7f && (spaces || byte < 0x7f) : spaces && c == ' ';
  });
}

// The scheme's name ignores case, the rest does not.
bool has_scheme(std::string_view value, std::string_view scheme) noexcept {
  return value.size() >= scheme.size() &&
         std::equal(scheme.begin(), scheme.end(), value.begin(),
                    [](char a, char b) { return ascii_lower(a) == ascii_lower(b); });
}

bool same_secret(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

Status check_access(const HttpAccess& access) {
  const auto wrong = [](Operation what) { return Error{Code::kInvalidArgument, what}; };
  // cpp-httplib decodes %XX in headers: such a token would never equal the one that was sent.
  if (access.token.size() > kCredentialBytesMax || !is_printable(access.token, false) ||
      access.token.find('%') != std::string::npos)
    return wrong(
        "token of a metrics endpoint: printable ASCII without spaces and %, at most 1,024 bytes");
  if (access.user.empty() != access.password.empty())
    return wrong("user and password of a metrics endpoint: both or none");
  if (access.user.size() > kCredentialBytesMax || access.password.size() > kCredentialBytesMax ||
      !is_printable(access.user, true) || !is_printable(access.password, true) ||
      access.user.find(':') != std::string::npos)
    return wrong("user and password of a metrics endpoint: one line, no colon in the user");
  return ok_status();
}

AccessCheck::AccessCheck(const HttpAccess& access) {
  // If there is a token, the page asks for it; a browser would ask for a user first.
  if (!access.token.empty()) {
    accepted_.push_back(std::string{kBearer} + access.token);
    challenges_.emplace_back("Bearer realm=\"remora\"");
  }
  if (!access.user.empty()) {
    accepted_.push_back(
        httplib::make_basic_authentication_header(access.user, access.password).second);
    challenges_.emplace_back("Basic realm=\"remora\", charset=\"UTF-8\"");
  }
}

bool AccessCheck::allows(std::string_view authorization) const noexcept {
  if (accepted_.empty()) return true;
  bool allowed = false;
  for (const std::string_view accepted : accepted_)
    for (const std::string_view scheme : {kBearer, kBasic})
      if (has_scheme(authorization, scheme) && has_scheme(accepted, scheme))
        allowed |= same_secret(authorization.substr(scheme.size()), accepted.substr(scheme.size()));
  return allowed;
}

}  // namespace remora::metrics
