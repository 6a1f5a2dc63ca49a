// The keys as a section of a manual page, in the format of scdoc(5).

#include <string>
#include <string_view>

#include <remora/config/describe.h>

#include "keys.h"

namespace remora::config {
namespace {

// Escapes the characters that scdoc takes for marks.
std::string scdoc_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '*' || c == '_' || c == '\\') result.push_back('\\');
    result.push_back(c);
  }
  return result;
}

// Code is bold; an asterisk alone would end the mark.
std::string scdoc_markup(std::string_view text) {
  std::string result;
  while (true) {
    const std::size_t begin = text.find('`');
    const std::size_t end = begin == std::string_view::npos ? begin : text.find('`', begin + 1);
    if (end == std::string_view::npos) return result.append(scdoc_text(text));
    const std::string_view inner = text.substr(begin + 1, end - begin - 1);
    const std::string_view mark = inner.find('*') == std::string_view::npos ? "*" : "";
    result.append(scdoc_text(text.substr(0, begin))).append(mark);
    result.append(scdoc_text(inner)).append(mark);
    text.remove_prefix(end + 1);
  }
}

std::string manual_entry(const Key& key) {
  const std::string range = key.accepts.empty() ? range_text(key) : std::string{key.accepts};
  const std::string standard = standard_text(key);
  std::string text{"*"};
  text.append(scdoc_text(key.path)).append("* _").append(to_string(key.type)).append("_\n\t");
  text.append(scdoc_markup(key.help))
      .append("\n\n\tAccepted: ")
      .append(scdoc_markup(range))
      .append(".");
  if (key.required)
    text.append(" Required.");
  else if (!standard.empty())
    text.append(" Default: *").append(scdoc_text(standard)).append("*.");
  if (reload_rule(key.path).taken) text.append(" SIGHUP takes it again.");
  return text.append("\n\n");
}

}  // namespace

std::string reference_manual() {
  std::string text{"\n"};
  for (const Key& key : keys()) {
    const bool top = parent(key.path).empty();
    if (top) text.append("## ").append(key.path).append("\n\n");
    if (key.type == KeyType::kMap)
      text.append(scdoc_markup(key.help)).append("\n\n");
    else
      text.append(manual_entry(key));
  }
  return text;
}

}  // namespace remora::config
