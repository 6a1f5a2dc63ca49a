// Lines of the log as JSON: see remora/engine/log.h.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <fmt/format.h>
#include <string>
#include <string_view>

#include <remora/engine/log.h>

#include "base/utf8.h"

namespace remora {
namespace {

constexpr std::size_t kMaxTextBytes = 8192;
constexpr std::size_t kMaxValueBytes = 1024;
constexpr std::string_view kEllipsis = "\xe2\x80\xa6";
constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

std::string_view word_of(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kDebug: return "debug";
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kError: return "error";
  }
  return "warning";
}

/// One character of a JSON string. Source: RFC 8259, section 7.
std::string escaped(std::string_view character) {
  if (character.size() > 1) return std::string{character};
  switch (character.front()) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: break;
  }
  const auto code = static_cast<unsigned char>(character.front());
  if (code < 0x20 || code == 0x7f) return fmt::format("\\u{:04x}", code);
  return std::string{character};
}

/// `text` as a JSON string of at most `max_bytes` bytes between its quotes, and an ellipsis.
void append_string(std::string& json, std::string_view text, std::size_t max_bytes) {
  json += '"';
  const std::size_t end = json.size() + max_bytes;
  while (!text.empty()) {
    const std::size_t whole = detail::character_bytes(text);
    const std::string character =
        whole == 0 ? std::string{kReplacement} : escaped(text.substr(0, whole));
    if (json.size() + character.size() > end) {
      json += kEllipsis;
      break;
    }
    json += character;
    text.remove_prefix(std::max<std::size_t>(whole, 1));
  }
  json += '"';
}

/// Whether JSON takes the value as it is: `inf` and `nan` are no numbers there.
bool is_bare(std::string_view value) noexcept {
  if (value == "true" || value == "false") return true;
  const std::string_view digits = value.substr(value.starts_with('-') ? 1 : 0);
  return !digits.empty() && digits.front() >= '0' && digits.front() <= '9' &&
         value.size() <= kMaxValueBytes &&
         digits.find_first_not_of("0123456789.eE+-") == std::string_view::npos;
}

void append_time(std::string& json, std::chrono::system_clock::time_point at) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(at);
  const auto part = std::chrono::floor<std::chrono::microseconds>(at - whole);
  const std::time_t seconds = std::chrono::system_clock::to_time_t(whole);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  json +=
      fmt::format("\"{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z\"", utc.tm_year + 1900,
                  utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, part.count());
}

}  // namespace

std::string to_json(const LogLine& line) {
  std::string json = "{\"time\":";
  append_time(json, line.at);
  json.append(R"(,"level":")").append(word_of(line.level)).append(R"(","event":)");
  append_string(json, line.event, kMaxValueBytes);
  json += ",\"text\":";
  append_string(json, line.text, kMaxTextBytes);
  for (const LogField& field : line.fields.first(std::min(line.fields.size(), kMaxLogFields))) {
    json += ',';
    append_string(json, field.name, kMaxValueBytes);
    json += ':';
    if (!field.quoted && is_bare(field.value))
      json += field.value;
    else
      append_string(json, field.value, kMaxValueBytes);
  }
  json += '}';
  return json;
}

}  // namespace remora
