#pragma once

/// Prints every enumeration of verbs/ that has a to_string.
///
/// Structures and handles have an operator<< of their own, beside them: one line each, for logs.
///
/// Thread safety: pure functions.

#include <concepts>
#include <ostream>
#include <string_view>
#include <type_traits>

namespace remora::verbs {

/// An enumeration whose namespace has a to_string for it.
template <typename Enum>
concept NamedEnum = std::is_enum_v<Enum> && requires(Enum value) {
  { to_string(value) } -> std::convertible_to<std::string_view>;
};

/// Prints the text of to_string().
template <NamedEnum Enum>
std::ostream& operator<<(std::ostream& out, Enum value) {
  return out << std::string_view{to_string(value)};
}

}  // namespace remora::verbs
