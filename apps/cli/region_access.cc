#include "cli/region_access.h"

#include <sstream>

#include <remora/config/server_config.h>

namespace remora::apps {

std::optional<Rights> parse_rights(const std::string& text) {
  Rights rights = Rights::kNone;
  std::istringstream words{text};
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "read")
      rights = rights | Rights::kRead;
    else if (word == "write")
      rights = rights | Rights::kWrite;
    else if (word == "atomic")
      rights = rights | Rights::kAtomic;
    else
      return std::nullopt;
  }
  return rights == Rights::kNone ? std::nullopt : std::optional{rights};
}

std::optional<RegionAccess> parse_access(const std::string& text) {
  const std::size_t sign = text.find('=');
  if (sign == std::string::npos) return std::nullopt;
  RegionAccess access{.client = text.substr(0, sign)};
  if (access.client != config::kAnyClient && !config::is_client_name(access.client))
    return std::nullopt;
  std::istringstream words{text.substr(sign + 1)};
  for (std::string word; std::getline(words, word, ',');) {
    const auto right = word == "admin" ? std::optional{Rights::kNone} : parse_rights(word);
    if (!right) return std::nullopt;
    access.rights = access.rights | *right;
    access.admin = access.admin || word == "admin";
  }
  if (access.rights == Rights::kNone && !access.admin) return std::nullopt;
  return access;
}

std::string explain_access(const std::string& text) {
  return "--allow " + text +
         ": want NAME=RIGHTS with a client's name or *, and one or more of "
         "read,write,atomic,admin";
}

}  // namespace remora::apps
