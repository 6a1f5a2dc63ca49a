#pragma once

/// "host:port" in the form that users write in URIs, configuration keys and addresses of HTTP
/// endpoints.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace remora::detail {

/// The parts of "host", "host:port", "[address]" and "[address]:port". Views of the text.
struct HostPort {
  std::string_view host;  ///< without brackets; may be empty
  std::string_view port;  ///< the text after the colon; may be empty
  bool in_brackets = false;
  bool has_port = false;  ///< a colon follows the host
};

/// Splits `text` after the bracket that closes the host, or without a bracket at the first colon,
/// so an IPv6 address needs brackets. The caller checks the parts. Empty: a bracket is not closed,
/// or another character than a colon follows it.
[[nodiscard]] constexpr std::optional<HostPort> split_host_port(std::string_view text) noexcept {
  HostPort parts;
  std::string_view rest;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    parts.in_brackets = true;
    parts.host = text.substr(1, close - 1);
    rest = text.substr(close + 1);
  } else {
    parts.host = text.substr(0, text.find(':'));
    rest = text.substr(parts.host.size());
  }
  if (rest.empty()) return parts;
  if (!rest.starts_with(':')) return std::nullopt;
  parts.has_port = true;
  parts.port = rest.substr(1);
  return parts;
}

/// The text that split_host_port() splits: with brackets around a host that contains a colon.
[[nodiscard]] inline std::string join_host_port(std::string_view host, std::uint16_t port) {
  const bool brackets = host.find(':') != std::string_view::npos;
  std::string text;
  if (brackets) text += '[';
  text += host;
  if (brackets) text += ']';
  return text.append(1, ':').append(std::to_string(port));
}

}  // namespace remora::detail
