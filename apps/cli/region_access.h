#pragma once

/// Rights and access lists on the command line.

#include <optional>
#include <string>

#include <remora/remora.h>

namespace remora::apps {

/// "read,write,atomic". Empty: it is none.
[[nodiscard]] std::optional<Rights> parse_rights(const std::string& text);
/// "NAME=read,write,atomic,admin". Empty: it is none.
[[nodiscard]] std::optional<RegionAccess> parse_access(const std::string& text);
/// What is wrong with a text that parse_access() refuses, the value of --allow.
[[nodiscard]] std::string explain_access(const std::string& text);

}  // namespace remora::apps
