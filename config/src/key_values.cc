// The places, accepted values and written form of one key.

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <remora/config/units.h>

#include "keys.h"
#include "text.h"

namespace remora::config {
namespace {

using namespace std::string_view_literals;  // NOLINT(google-build-using-namespace): literals only

// Without the marks that documentation puts around code.
std::string without_backticks(std::string_view text_with_marks) {
  std::string result{text_with_marks};
  std::erase(result, '`');
  return result;
}

std::string outside(const Key& key, const std::string& found) {
  return "must be " + range_text(key) + ", found " + found;
}

std::string check_words(const Key& key, const std::vector<std::string>& words) {
  if (words.empty()) return "empty: name at least one of " + join(key.words, "and");
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (std::find(key.words.begin(), key.words.end(), words[i]) == key.words.end())
      return outside(key, in_quotes(words[i]));
    const auto end = words.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(words.begin(), end, words[i]) != end)
      return in_quotes(words[i]) + " stands there twice";
  }
  return {};
}

std::string check_names(const Key& key, const std::vector<std::string>& names) {
  if (names.size() < key.min) return "empty: must be " + range_text(key);
  if (names.size() > key.max)
    return "at most " + std::to_string(key.max) + ", found " + std::to_string(names.size());
  std::string wrong;
  for (std::size_t i = 0; i < names.size() && wrong.empty(); ++i) wrong = check_name(key, names, i);
  return wrong;
}

// Words that YAML or a reader might take for another type are written in quotes.
std::string yaml_scalar(std::string_view value) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  constexpr std::array kNulls{"null"sv, "Null"sv, "NULL"sv};
  if (!value.empty() && std::all_of(value.begin(), value.end(), is_plain) && value[0] != '-' &&
      value[0] != '.' && std::find(kNulls.begin(), kNulls.end(), value) == kNulls.end())
    return std::string{value};
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string result = "\"";
  for (std::size_t i = 0; i < value.size(); ++i) {
    const auto byte = static_cast<unsigned char>(value[i]);
    if (byte < 0x20 || byte == 0x7f) {
      result.append("\\x").append(1, kHex[byte >> 4U]).append(1, kHex[byte & 15U]);
      continue;
    }
    // U+0080 to U+009F: some terminals obey them.
    if (byte == 0xc2 && i + 1 < value.size() && static_cast<unsigned char>(value[i + 1]) < 0xa0) {
      const auto point = static_cast<unsigned char>(value[++i]);
      result.append("\\x").append(1, kHex[point >> 4U]).append(1, kHex[point & 15U]);
      continue;
    }
    if (value[i] == '"' || value[i] == '\\') result.push_back('\\');
    if (value.substr(i).starts_with("${")) result.push_back('$');
    result.push_back(value[i]);
  }
  return result.append("\"");
}

}  // namespace

const Key* find_key(std::string_view path) {
  const std::span<const Key> all = keys();
  const auto key =
      std::find_if(all.begin(), all.end(), [path](const Key& each) { return each.path == path; });
  return key == all.end() ? nullptr : &*key;
}

std::string_view leaf(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

std::string_view parent(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : path.substr(0, dot);
}

std::vector<std::string_view> children(std::string_view path) {
  std::vector<std::string_view> result;
  for (const Key& key : keys())
    if (parent(key.path) == path) result.push_back(leaf(key.path));
  return result;
}

std::string path_at(std::string_view path, At at) {
  std::string result{path};
  for (const std::size_t index : {at.item, at.inner}) {
    const std::size_t brackets = result.find("[]");
    if (brackets == std::string::npos) break;
    result.insert(brackets + 1, std::to_string(index));
  }
  return result;
}

void for_each_place(const ServerConfig& config, const Key& key,
                    const std::function<void(const std::string& path, At at)>& visit) {
  const std::string_view within = parent(key.path);
  if (!within.ends_with("[]")) {
    visit(std::string{key.path}, {});
    return;
  }
  const Key& list_key = *find_key(within.substr(0, within.size() - 2));
  for_each_place(config, list_key, [&](const std::string&, At outer) {
    const bool nested = list_key.path.find("[]") != std::string_view::npos;
    const std::size_t count = list_key.count(config, outer);
    for (std::size_t i = 0; i < count; ++i) {
      const At at = nested ? At{outer.item, i} : At{i, 0};
      visit(path_at(key.path, at), at);
    }
  });
}

std::string range_text(const Key& key) {
  const auto between = [](const std::string& low, const std::string& high) {
    return low + " to " + high;
  };
  switch (key.type) {
    case KeyType::kMap: return {};
    case KeyType::kList:
      return (key.min == 0 ? "at most " : std::to_string(key.min) + " to ") +
             std::to_string(key.max);
    case KeyType::kText:
    case KeyType::kNames: return without_backticks(key.accepts);
    case KeyType::kBoolean: return "true or false";
    case KeyType::kNumber: return between(std::to_string(key.min), std::to_string(key.max));
    case KeyType::kSize: return between(format_size(key.min), format_size(key.max));
    case KeyType::kDuration:
      return between(format_duration(std::chrono::nanoseconds{static_cast<std::int64_t>(key.min)}),
                     format_duration(std::chrono::nanoseconds{static_cast<std::int64_t>(key.max)}));
    case KeyType::kChoice: return join(key.words, "or");
    case KeyType::kChoices: return "one or more of " + join(key.words, "and");
  }
  return {};
}

std::string check_name(const Key& key, const std::vector<std::string>& names, std::size_t index) {
  const std::string& name = names[index];
  if (!key.check(name)) return outside(key, in_quotes(name));
  if (names.size() > 1 && std::find(key.words.begin(), key.words.end(), name) != key.words.end())
    return in_quotes(name) + " stands alone, not in a list with others";
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(index);
  if (std::find(names.begin(), end, name) != end) return in_quotes(name) + " stands there twice";
  return {};
}

std::string check_value(const Key& key, const Value& value) {
  switch (key.type) {
    case KeyType::kMap:
    case KeyType::kList:
    case KeyType::kBoolean: return {};
    case KeyType::kNumber:
    case KeyType::kSize: {
      const auto found = std::get<std::uint64_t>(value);
      if (found >= key.min && found <= key.max) return {};
      return outside(key, key.type == KeyType::kSize ? format_size(found) : std::to_string(found));
    }
    case KeyType::kDuration: {
      const auto found = std::get<std::chrono::nanoseconds>(value);
      const std::int64_t count = found.count();
      if (count >= static_cast<std::int64_t>(key.min) &&
          count <= static_cast<std::int64_t>(key.max))
        return {};
      return outside(key, format_duration(found));
    }
    case KeyType::kText: {
      const auto& found = std::get<std::string>(value);
      if (key.check(found)) return {};
      if (key.secret || key.discreet) return "must be " + range_text(key);
      return outside(key, in_quotes(found));
    }
    case KeyType::kChoice: {
      const auto& found = std::get<std::string>(value);
      if (std::find(key.words.begin(), key.words.end(), found) != key.words.end()) return {};
      return outside(key, in_quotes(found));
    }
    case KeyType::kChoices: return check_words(key, std::get<std::vector<std::string>>(value));
    case KeyType::kNames: return check_names(key, std::get<std::vector<std::string>>(value));
  }
  return {};
}

std::string yaml_text(const Key& key, const Value& value) {
  switch (key.type) {
    case KeyType::kMap:
    case KeyType::kList: return {};
    case KeyType::kBoolean: return std::get<bool>(value) ? "true" : "false";
    case KeyType::kNumber: return std::to_string(std::get<std::uint64_t>(value));
    case KeyType::kSize: return format_size(std::get<std::uint64_t>(value));
    case KeyType::kDuration: return format_duration(std::get<std::chrono::nanoseconds>(value));
    case KeyType::kText:
    case KeyType::kChoice:
      // A server that reads this back reports that the secret is missing, so it does not start
      // without one.
      return key.secret ? "${HIDDEN}" : yaml_scalar(std::get<std::string>(value));
    case KeyType::kChoices: {
      const auto& words = std::get<std::vector<std::string>>(value);
      std::string list;
      for (const std::string& word : words) list.append(list.empty() ? "" : ", ").append(word);
      return "[" + list + "]";
    }
    case KeyType::kNames: {
      const auto& names = std::get<std::vector<std::string>>(value);
      if (names.size() == 1) return yaml_scalar(names[0]);
      std::string list;
      for (const std::string& name : names)
        list.append(list.empty() ? "" : ", ").append(yaml_scalar(name));
      return "[" + list + "]";
    }
  }
  return {};
}

}  // namespace remora::config
