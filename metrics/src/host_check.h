#pragma once

/// The names that requests to an endpoint may use. A page of another site can make a browser send a
/// request to this endpoint under a name of that site, after changing the address of that name (DNS
/// rebinding); then the browser treats the answer as that site's and shows it to the page. The name
/// is in `Host`.

#include <string>
#include <string_view>
#include <vector>

#include <remora/result.h>

namespace remora::metrics {

class HostCheck {
 public:
  /// `allowed`: names besides addresses, "localhost" and the name of this machine; "*": any.
  explicit HostCheck(const std::vector<std::string>& allowed);

  /// `host`: the value of that header, with or without a port. Addresses are always allowed: a page
  /// cannot take over an address. So is an empty value: a browser always sends the header.
  [[nodiscard]] bool allows(std::string_view host) const;
  [[nodiscard]] const std::string& machine() const noexcept { return machine_; }

 private:
  std::string machine_;
  std::vector<std::string> names_;  ///< lower case, without a dot at the end
  bool any_ = false;
};

}  // namespace remora::metrics
