#include "transport/rail_choice.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace remora::transport {

namespace {

bool is_device_name(std::string_view name) noexcept {
  constexpr std::size_t kMaxBytes = 63;
  return !name.empty() && name.front() != '-' && name.size() <= kMaxBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '_' || c == '-' || c == '.';
         });
}

}  // namespace

Result<RailChoice> RailChoice::parse(std::string_view text) {
  const auto wrong = [&] {
    return Error{Code::kInvalidArgument, "rails"}.with_subject(text.empty() ? "(nothing)" : text);
  };
  RailChoice choice;
  if (text == "auto") {
    choice.max = kMaxRails;
    return choice;
  }
  const char* const end = text.data() + text.size();
  if (const auto parsed = std::from_chars(text.data(), end, choice.max);
      parsed.ec == std::errc{} && parsed.ptr == end) {
    if (choice.max == 0 || choice.max > kMaxRails) return wrong();
    return choice;
  }
  for (std::string_view rest = text; true;) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    const bool twice = !choice.devices.empty() && choice.allows(name);
    if (!is_device_name(name) || twice) return wrong();
    choice.devices.emplace_back(name);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (choice.devices.size() > kMaxRails) return wrong();
  choice.max = static_cast<std::uint32_t>(choice.devices.size());
  return choice;
}

bool RailChoice::allows(std::string_view device) const noexcept {
  return devices.empty() || std::find(devices.begin(), devices.end(), device) != devices.end();
}

}  // namespace remora::transport
