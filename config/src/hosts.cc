#include "hosts.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <netinet/in.h>
#include <optional>
#include <string>

#include <remora/config/server_config.h>
#include <remora/config/units.h>
#include <remora/host_port.h>

#include "text.h"

namespace remora::config {
namespace {

constexpr std::size_t kHostNameBytesMax = 253;
constexpr std::size_t kHostLabelBytesMax = 63;
constexpr std::size_t kScopeBytesMax = 15;       // IFNAMSIZ - 1
constexpr std::size_t kDeviceNameBytesMax = 63;  // IB_DEVICE_NAME_MAX - 1
constexpr std::uint64_t kPortMax = 65535;

bool is_alnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name_character(char c) { return is_alnum(c) || c == '.' || c == '_' || c == '-'; }

std::optional<in_addr> parse_ipv4(std::string_view text) {
  in_addr address{};
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  if (::inet_pton(AF_INET, std::string{text}.c_str(), &address) != 1) return std::nullopt;
  return address;
}

std::optional<in6_addr> parse_ipv6(std::string_view text) {
  in6_addr address{};
  const std::size_t percent = text.find('%');
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  if (percent != std::string_view::npos) {
    const std::string_view scope = text.substr(percent + 1);
    if (scope.empty() || scope.size() > kScopeBytesMax ||
        !std::all_of(scope.begin(), scope.end(), is_name_character))
      return std::nullopt;
  }
  if (::inet_pton(AF_INET6, std::string{text.substr(0, percent)}.c_str(), &address) != 1)
    return std::nullopt;
  return address;
}

bool is_host_label(std::string_view label) {
  return !label.empty() && label.size() <= kHostLabelBytesMax && label.front() != '-' &&
         label.back() != '-' && std::all_of(label.begin(), label.end(), [](char c) {
           return is_alnum(c) || c == '-' || c == '_';
         });
}

bool is_host_name(std::string_view text) {
  if (text.empty() || text.size() > kHostNameBytesMax) return false;
  std::string_view rest = text;
  std::string_view label;
  while (true) {
    const std::size_t dot = rest.find('.');
    label = rest.substr(0, dot);
    if (!is_host_label(label)) return false;
    if (dot == std::string_view::npos) break;
    rest.remove_prefix(dot + 1);
  }
  // 10.0.0.300 is a mistyped address, not a name.
  return !std::all_of(label.begin(), label.end(), is_digit);
}

}  // namespace

bool is_host(std::string_view text) {
  return parse_ipv4(text) || parse_ipv6(text) || is_host_name(text);
}

std::vector<std::string> host_names(std::string_view text) {
  std::vector<std::string> names;
  while (true) {
    const std::size_t comma = text.find(',');
    std::string_view name = text.substr(0, comma);
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    names.emplace_back(name);
    if (comma == std::string_view::npos) return names;
    text.remove_prefix(comma + 1);
  }
}

bool are_host_names(std::string_view text) {
  constexpr std::size_t kMax = 64;
  const std::vector<std::string> names = host_names(text);
  return names.size() <= kMax && std::all_of(names.begin(), names.end(), [](const auto& name) {
           return name == "*" || is_host(name);
         });
}

bool is_device_name(std::string_view text) {
  return !text.empty() && text.size() <= kDeviceNameBytesMax &&
         std::all_of(text.begin(), text.end(), is_name_character);
}

bool is_region_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= kRegionNameBytesMax && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), is_name_character);
}

bool is_loopback(std::string_view address) noexcept {
  constexpr std::string_view kLocalhost = "localhost";
  if (std::equal(address.begin(), address.end(), kLocalhost.begin(), kLocalhost.end(),
                 [](char a, char b) { return ascii_lower(a) == b; }))
    return true;
  if (const auto ipv4 = parse_ipv4(address)) return (ntohl(ipv4->s_addr) >> 24U) == 127;
  if (const auto ipv6 = parse_ipv6(address)) {
    if (IN6_IS_ADDR_LOOPBACK(&*ipv6)) return true;
    return IN6_IS_ADDR_V4MAPPED(&*ipv6) && ipv6->s6_addr[12] == 127;
  }
  return false;
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  const Error error = Error{Code::kInvalidArgument, "parse_endpoint"}.with_subject(text);
  const auto parts = remora::detail::split_host_port(text);
  if (!parts || !parts->has_port) return error;
  const auto port = parse_number(parts->port);
  if (!port || *port == 0 || *port > kPortMax) return error;
  if (parts->in_brackets ? !parse_ipv6(parts->host) : !is_host(parts->host)) return error;
  return Endpoint{std::string{parts->host}, static_cast<std::uint16_t>(*port)};
}

std::string_view to_string(Availability availability) noexcept {
  switch (availability) {
    case Availability::kOff: return "off";
    case Availability::kAuto: return "auto";
    case Availability::kRequired: return "required";
  }
  return "unknown";
}

std::string_view to_string(RdmaProtection protection) noexcept {
  switch (protection) {
    case RdmaProtection::kAuto: return "auto";
    case RdmaProtection::kRegistrations: return "registrations";
    case RdmaProtection::kWindows: return "windows";
    case RdmaProtection::kWindowsUnchecked: return "windows-unchecked";
  }
  return "unknown";
}

std::string_view to_string(HugePages huge_pages) noexcept {
  switch (huge_pages) {
    case HugePages::kNever: return "never";
    case HugePages::kTry: return "try";
    case HugePages::kRequire: return "require";
    case HugePages::kRequire1GiB: return "1GiB";
  }
  return "unknown";
}

std::string_view to_string(Auth auth) noexcept {
  switch (auth) {
    case Auth::kNone: return "none";
    case Auth::kKeys: return "keys";
  }
  return "unknown";
}

std::string_view to_string(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kTrace: return "trace";
    case LogLevel::kDebug: return "debug";
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarn: return "warn";
    case LogLevel::kError: return "error";
    case LogLevel::kOff: return "off";
  }
  return "unknown";
}

std::string_view to_string(LogFormat format) noexcept {
  switch (format) {
    case LogFormat::kText: return "text";
    case LogFormat::kJson: return "json";
  }
  return "unknown";
}

}  // namespace remora::config
