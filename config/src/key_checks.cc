#include "key_checks.h"

#include <algorithm>
#include <cstddef>

#include <remora/config/rdma_settings.h>
#include <remora/config/secret_key.h>
#include <remora/config/server_config.h>

namespace remora::config {
namespace {

constexpr std::size_t kCredentialBytesMax = 1'024;

}  // namespace

bool is_pkey(std::string_view value) {
  RdmaSettings settings;
  return set_rdma_setting(settings, "pkey", value).ok();
}

bool is_metrics_address(std::string_view value) {
  return value == "none" || parse_endpoint(value).ok();
}

bool is_token(std::string_view value) {
  return !value.empty() && value.size() <= kCredentialBytesMax &&
         std::all_of(value.begin(), value.end(),
                     [](char c) { return c > ' ' && c < '\x7f' && c != '%'; });
}

bool is_password(std::string_view value) {
  return !value.empty() && value.size() <= kCredentialBytesMax &&
         std::none_of(value.begin(), value.end(), [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return byte < 0x20 || byte == 0x7f;
         });
}

bool is_user(std::string_view value) {
  return is_password(value) && value.find(':') == std::string_view::npos;
}

bool is_key_text(std::string_view value) { return SecretKey::parse(value).ok(); }

bool is_access_client(std::string_view value) {
  return value == kAnyClient || is_client_name(value);
}

bool is_file_name(std::string_view value) {
  return !value.empty() && value.find('\0') == std::string_view::npos;
}

bool is_absolute_path(std::string_view value) {
  return is_file_name(value) && value.starts_with('/');
}

bool is_cluster_file(std::string_view value) {
  constexpr std::string_view kEnding = ".json";
  const std::size_t name = value.rfind('/') + 1;
  return is_absolute_path(value) && value.ends_with(kEnding) &&
         value.size() - name > kEnding.size();
}

bool is_etcd_endpoint(std::string_view value) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (value.starts_with(scheme)) {
      const std::string_view rest = value.substr(scheme.size());
      return rest.find_first_of("/@?#, ") == std::string_view::npos && parse_endpoint(rest).ok();
    }
  return false;
}

bool is_advertised_address(std::string_view value) {
  const auto endpoint = parse_endpoint(value);
  return endpoint.ok() && endpoint->address != "0.0.0.0" && endpoint->address != "::" &&
         value.find_first_of("/@?#, ") == std::string_view::npos;
}

}  // namespace remora::config
