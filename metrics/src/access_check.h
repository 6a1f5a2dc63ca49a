#pragma once

/// The credentials that readers of an endpoint have to present.

#include <string>
#include <string_view>
#include <vector>

#include <remora/metrics/http_endpoint.h>

namespace remora::metrics {

/// Errors: kInvalidArgument (a token that no header can carry, a user without a password).
Status check_access(const HttpAccess& access);

/// Compares credentials in a time that does not depend on where they differ.
class AccessCheck {
 public:
  explicit AccessCheck(const HttpAccess& access);

  /// `authorization`: the value of that header; empty where there is none.
  [[nodiscard]] bool allows(std::string_view authorization) const noexcept;
  /// Values of WWW-Authenticate.
  [[nodiscard]] const std::vector<std::string>& challenges() const noexcept { return challenges_; }

 private:
  std::vector<std::string> accepted_;  ///< values of Authorization; none: every reader is let in
  std::vector<std::string> challenges_;
};

}  // namespace remora::metrics
