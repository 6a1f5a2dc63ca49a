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

}  // namespace remora::config
