#pragma once

/// Checks the credentials of readers of an endpoint.

#include <string>
#include <string_view>
#include <vector>

#include <remora/metrics/http_endpoint.h>

namespace remora::metrics {

/// Errors: kInvalidArgument (a token that no header can carry, a user without a password).
Status check_access(const HttpAccess& access);

/// Compares credentials in a time that does not depend on the place of a difference.
class AccessCheck {
 public:
  explicit AccessCheck(const HttpAccess& access);

  /// `authorization`: the value of that header; empty if the request has none.
  [[nodiscard]] bool allows(std::string_view authorization) const noexcept;
  /// Values of WWW-Authenticate.
  [[nodiscard]] const std::vector<std::string>& challenges() const noexcept { return challenges_; }

 private:
  std::vector<std::string> accepted_;  ///< values of Authorization; empty: every reader is accepted
  std::vector<std::string> challenges_;
};

}  // namespace remora::metrics
