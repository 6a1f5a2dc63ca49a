#pragma once

/// Numbers that a service manager passes in environment variables.

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace remora::apps {

/// None: the variable is not set, or is no number.
[[nodiscard]] inline std::optional<std::uint64_t> number_in_environment(
    const char* variable) noexcept {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const std::string_view all{text};
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), number);
  if (error != std::errc{} || end != all.data() + all.size()) return std::nullopt;
  return number;
}

}  // namespace remora::apps
