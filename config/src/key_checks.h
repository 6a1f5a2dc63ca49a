#pragma once

/// Whether a text is a value of the keys that these functions are named after.

#include <string_view>

namespace remora::config {

[[nodiscard]] bool is_pkey(std::string_view value);
/// `none`, or an endpoint.
[[nodiscard]] bool is_metrics_address(std::string_view value);
/// Only characters that a header of a request can carry.
[[nodiscard]] bool is_token(std::string_view value);
[[nodiscard]] bool is_password(std::string_view value);
[[nodiscard]] bool is_user(std::string_view value);
[[nodiscard]] bool is_key_text(std::string_view value);
/// The name of a client, or kAnyClient.
[[nodiscard]] bool is_access_client(std::string_view value);
[[nodiscard]] bool is_file_name(std::string_view value);

}  // namespace remora::config
