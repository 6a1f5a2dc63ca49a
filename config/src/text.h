#pragma once

/// Small text helpers of the config module.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <remora/config/nearest.h>
#include <remora/config/printable.h>

namespace remora::config {

/// 'text' for a message: printable(), long texts end in "...".
std::string in_quotes(std::string_view text);

/// "a", "a and b", "a, b and c" with `last_word` between the last two.
std::string join(std::span<const std::string_view> words, std::string_view last_word);

/// Lower case of ASCII, whatever locale the application has set: std::tolower() is the locale's.
[[nodiscard]] constexpr char ascii_lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// Offset of the first byte that is not part of well-formed UTF-8, if any.
/// Source: RFC 3629 (no overlong forms, no surrogates, nothing above U+10FFFF).
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

}  // namespace remora::config
