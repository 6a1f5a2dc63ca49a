#pragma once

/// Removes the addresses of a site from texts.

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace remora::apps::doctor {

/// Replaces addresses by names that stay the same within one mask, so that equal addresses get
/// equal names. IPv4, IPv6 (also with a zone or in brackets), MAC addresses, GUIDs, and the given
/// host names. Addresses that are the same everywhere (loopback and unspecified ones) stay.
///
/// Thread safety: one thread at a time.
class AddressMask {
 public:
  /// `hosts`: names to replace, of this machine and of the server.
  explicit AddressMask(std::vector<std::string> hosts);

  [[nodiscard]] std::string apply(std::string_view text);

 private:
  [[nodiscard]] std::string name_for(std::string_view kind, std::string_view value);
  [[nodiscard]] std::string mask_word(std::string_view word);
  [[nodiscard]] std::string mask_hosts(std::string text) const;

  std::vector<std::string> hosts_;
  std::map<std::string, std::string, std::less<>> names_;
};

}  // namespace remora::apps::doctor
