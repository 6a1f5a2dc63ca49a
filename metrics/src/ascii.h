#pragma once

namespace remora::metrics {

/// Lower case of ASCII, whatever locale the application has set: std::tolower() is the locale's.
[[nodiscard]] constexpr char ascii_lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace remora::metrics
