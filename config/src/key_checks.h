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
[[nodiscard]] bool is_absolute_path(std::string_view value);
/// The file of a cluster: an absolute path that ends in ".json".
[[nodiscard]] bool is_cluster_file(std::string_view value);
/// "http://HOST:PORT" or "https://HOST:PORT".
[[nodiscard]] bool is_etcd_endpoint(std::string_view value);
/// An endpoint to which clients can connect: no address that stands for every address.
[[nodiscard]] bool is_advertised_address(std::string_view value);

}  // namespace remora::config
