#pragma once

/// By which names an endpoint may be asked. A page of another site can make a browser ask this
/// endpoint under a name of its own, whose address it has changed meanwhile (DNS rebinding); then
/// the browser takes the answer for that site's and shows it to the page. The name is in `Host`.

#include <string>
#include <string_view>
#include <vector>

#include <remora/result.h>

namespace remora::metrics {

class HostCheck {
 public:
  /// `allowed`: names besides addresses, "localhost" and the name of this machine; "*": any.
  explicit HostCheck(const std::vector<std::string>& allowed);

  /// `host`: the value of that header, with or without a port. Addresses are no names: a page
  /// cannot make them its own. An empty one is none: a browser always sends it.
  [[nodiscard]] bool allows(std::string_view host) const;
  [[nodiscard]] const std::string& machine() const noexcept { return machine_; }

 private:
  std::string machine_;
  std::vector<std::string> names_;  ///< lower case, without a dot at the end
  bool any_ = false;
};

}  // namespace remora::metrics
