#pragma once

/// What a line of the log tells besides its text: the name of the event, and fields.

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace remora::log {

/// `name` is stable, and listed in engine/docs/log-events.md. `fields` names the arguments of the
/// line from the first one on, separated by spaces. `-` passes an argument over, and so does the
/// end of the list. `session:x` is a field `session` in hexadecimal digits, as the text has it.
struct Event {
  std::string_view name;
  std::string_view fields;
};

/// Lines of level debug have no name of their own.
inline constexpr Event kDetail{"detail", ""};

/// An Event for a line with arguments of these types, checked when it is compiled.
template <typename... Args>
class LogEvent {
 public:
  /// Implicit, so that a call reads: log::warn({"session.silent", "session:x"}, "...", id).
  // NOLINTNEXTLINE(google-explicit-constructor)
  consteval LogEvent(const char* name, const char* fields = "") : event_{name, fields} {
    if (!is_event_name(event_.name)) name_is_not_like_area_dot_event();
    check_fields();
  }
  [[nodiscard]] constexpr Event get() const noexcept { return event_; }

 private:
  // Not constexpr: a call of one of them ends the compilation.
  static void name_is_not_like_area_dot_event() {}
  static void more_fields_than_arguments() {}
  static void hexadecimal_field_is_no_integer() {}
  static void field_name_is_not_in_lower_case() {}

  static constexpr bool is_word(std::string_view text) noexcept {
    for (const char each : text)
      if ((each < 'a' || each > 'z') && (each < '0' || each > '9') && each != '_') return false;
    return !text.empty() && text.front() >= 'a';
  }
  static constexpr bool is_event_name(std::string_view text) noexcept {
    const std::size_t dot = text.find('.');
    return dot != std::string_view::npos && is_word(text.substr(0, dot)) &&
           is_word(text.substr(dot + 1));
  }
  constexpr void check_fields() const {
    // The last one stands for lines without arguments.
    constexpr std::array<bool, sizeof...(Args) + 1> kIntegers{
        std::integral<std::remove_cvref_t<Args>>..., false};
    std::string_view left = event_.fields;
    for (std::size_t index = 0; !left.empty(); ++index) {
      if (index >= sizeof...(Args)) return more_fields_than_arguments();
      std::string_view name = left.substr(0, left.find(' '));
      left.remove_prefix(name.size() < left.size() ? name.size() + 1 : name.size());
      if (name == "-") continue;
      if (name.ends_with(":x")) {
        name.remove_suffix(2);
        if (!kIntegers[index]) hexadecimal_field_is_no_integer();
      }
      if (!is_word(name)) field_name_is_not_in_lower_case();
    }
  }

  Event event_;
};

}  // namespace remora::log
