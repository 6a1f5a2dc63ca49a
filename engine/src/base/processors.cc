#include "base/processors.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <system_error>

namespace remora::detail {

namespace {

/// Higher than in any build of the kernel.
constexpr unsigned kMaxProcessor = 65535;

Error wrong(std::string_view part) {
  return Error{Code::kInvalidArgument,
               "placement: \"none\", \"auto\" or processors such as \"0-3,8\""}
      .with_subject(part.empty() ? "an empty part" : part);
}

std::optional<unsigned> number(std::string_view text) noexcept {
  unsigned value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size() || value > kMaxProcessor)
    return std::nullopt;
  return value;
}

}  // namespace

Result<Processors> parse_processors(std::string_view text) {
  Processors found;
  while (true) {
    const std::string_view part = text.substr(0, text.find(','));
    const auto dash = part.find('-');
    const auto first = number(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number(part.substr(dash + 1));
    if (!first || !last || *last < *first) return wrong(part);
    for (unsigned i = *first; i <= *last; ++i) found.push_back(i);
    if (part.size() == text.size()) break;
    text.remove_prefix(part.size() + 1);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::string to_text(const Processors& processors) {
  std::string text;
  for (std::size_t i = 0; i < processors.size();) {
    std::size_t end = i + 1;
    while (end < processors.size() && processors[end] == processors[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(processors[i]);
    if (end - i > 1) text += '-' + std::to_string(processors[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace remora::detail
