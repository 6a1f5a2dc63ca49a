#include "doctor/machine.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include <remora/config/units.h>

namespace remora::apps::doctor {
namespace {

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n";
  const std::size_t from = text.find_first_not_of(kBlanks);
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(kBlanks) - from + 1);
}

struct NumberRange {
  std::uint64_t first = 1;
  std::uint64_t last = 0;  ///< less than `first`: none
};

/// Removes "0-3" or "8", with the following comma, from the front of a list.
NumberRange take_range(std::string_view& list) {
  const std::size_t comma = list.find(',');
  const std::string_view part = without_blanks(list.substr(0, comma));
  list = comma == std::string_view::npos ? std::string_view{} : list.substr(comma + 1);
  const auto first = leading_number(part);
  if (!first) return {};
  const std::size_t dash = part.find('-');
  const auto last = dash == std::string_view::npos ? first : leading_number(part.substr(dash + 1));
  return {*first, last.value_or(*first)};
}

}  // namespace

std::string field(const FileView& files, const std::string& path, std::string_view name) {
  const std::string text = files.text(path);
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.starts_with(name) && line.substr(name.size()).starts_with(':'))
      return std::string{without_blanks(line.substr(name.size() + 1))};
  }
  return {};
}

std::string status_field(const FileView& files, std::string_view name) {
  return field(files, "/proc/self/status", name);
}

std::optional<std::uint64_t> meminfo_bytes(const FileView& files, std::string_view name) {
  const auto kibibytes = leading_number(field(files, "/proc/meminfo", name));
  if (!kibibytes) return std::nullopt;
  return *kibibytes << 10U;
}

bool has_capability(const FileView& files, std::string_view set, unsigned capability) {
  const std::string text = status_field(files, set);
  std::uint64_t bits = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), bits, 16);
  return parsed.ec == std::errc{} && ((bits >> capability) & 1U) != 0;
}

bool list_has(std::string_view list, unsigned number) {
  while (!list.empty()) {
    const NumberRange range = take_range(list);
    if (number >= range.first && number <= range.last) return true;
  }
  return false;
}

bool lists_meet(std::string_view a, std::string_view b) {
  while (!a.empty()) {
    const NumberRange mine = take_range(a);
    for (std::string_view rest = b; !rest.empty();) {
      const NumberRange other = take_range(rest);
      if (std::max(mine.first, other.first) <= std::min(mine.last, other.last)) return true;
    }
  }
  return false;
}

std::optional<std::uint64_t> leading_number(std::string_view text) {
  text = without_blanks(text);
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc{}) return std::nullopt;
  return value;
}

std::string limit_text(std::uint64_t bytes) {
  return bytes == kUnlimited ? "unlimited" : config::format_size(bytes);
}

}  // namespace remora::apps::doctor
