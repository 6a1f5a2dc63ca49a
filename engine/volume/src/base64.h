#pragma once

/// Base64 with padding (RFC 4648), in which etcd's gateway writes keys and values.

#include <optional>
#include <string>
#include <string_view>

namespace remora::volume {

[[nodiscard]] std::string to_base64(std::string_view bytes);
/// Empty: no base64.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);

}  // namespace remora::volume
