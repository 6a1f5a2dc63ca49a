#include <algorithm>
#include <set>

#include <remora/config/describe.h>

#include "keys.h"
#include "rules.h"
#include "text.h"

namespace remora::config {
namespace {

constexpr std::size_t kCommentColumn = 40;

class Printer {
 public:
  explicit Printer(const ServerConfig& config) : config_{config} {}

  std::string print() {
    for (const Key& key : keys()) {
      if (!parent(key.path).empty()) continue;
      if (key.type == KeyType::kMap)
        print_map(key);
      else if (key.type == KeyType::kList)
        print_list(key, std::string{key.path}, "", {});
      else
        print_value(key, std::string{key.path}, "", {});
    }
    return std::move(text_);
  }

 private:
  void print_map(const Key& map) {
    const std::span<const Key> all = keys();
    const bool any_set = std::any_of(all.begin(), all.end(), [&](const Key& key) {
      return parent(key.path) == map.path && key.read(config_, {});
    });
    // The parser would refuse a map without a value.
    if (!any_set) return print_line("# " + std::string{map.path} + ":", "not set");
    text_.append(map.path).append(":\n");
    for (const Key& key : keys())
      if (parent(key.path) == map.path) print_value(key, std::string{key.path}, "  ", {});
  }

  // `path` is that of the list, `margin` the text before it.
  void print_list(const Key& list, const std::string& path, const std::string& margin, At outer) {
    const std::size_t count = list.count(config_, outer);
    const std::string name = margin + std::string{leaf(list.path)} + ":";
    if (count == 0) {
      // For some keys an empty list has another meaning.
      print_line(list.min == 0 ? name + " []" : margin + "# " + std::string{leaf(list.path)} + ":",
                 list.min == 0 ? "default" : "not set");
      return;
    }
    text_.append(name).append("\n");
    const bool nested = list.path.find("[]") != std::string_view::npos;
    const std::string elements = std::string{list.path} + "[]";
    for (std::size_t i = 0; i < count; ++i) {
      const At at = nested ? At{outer.item, i} : At{i, 0};
      const std::string element = path + "[" + std::to_string(i) + "].";
      std::string indent = margin + "  - ";
      for (const Key& key : keys()) {
        if (parent(key.path) != elements) continue;
        const std::string key_path = element + std::string{leaf(key.path)};
        if (key.type == KeyType::kList)
          print_list(key, key_path, margin + "    ", at);
        else
          print_value(key, key_path, indent, at);
        indent = margin + "    ";
      }
    }
  }

  void print_value(const Key& key, const std::string& path, const std::string& indent, At at) {
    const std::optional<Value> value = key.read(config_, at);
    const Key* const file = key.secret ? find_key(std::string{key.path} + "_file") : nullptr;
    const bool from_file = file != nullptr && file->read(config_, at);
    if (!value || from_file) {
      print_line(indent + "# " + std::string{leaf(key.path)} + ":",
                 from_file ? "from " + std::string{leaf(file->path)} : "not set");
      return;
    }
    const std::string text = yaml_text(key, *value);
    print_line(indent + std::string{leaf(key.path)} + ": " + text, origin(key, path, text));
  }

  [[nodiscard]] std::string origin(const Key& key, const std::string& path,
                                   const std::string& text) const {
    const auto found = config_.origins.find(path);
    if (found == config_.origins.end())
      return !key.required && text == standard_text(key) ? "default" : "program";
    const Origin& origin = found->second;
    std::string result = printable(origin.file) + ":" + std::to_string(origin.line);
    if (!origin.environment.empty()) result.append(" from ").append(printable(origin.environment));
    return result;
  }

  void print_line(std::string line, const std::string& comment) {
    if (line.size() < kCommentColumn) line.resize(kCommentColumn, ' ');
    text_.append(line).append("  # ").append(comment).append("\n");
  }

  const ServerConfig& config_;
  std::string text_;
};

// A vertical bar would end the cell.
std::string cell(std::string_view text) {
  std::string result;
  for (const char c : text) result.append(c == '|' ? "\\|" : std::string(1, c));
  return result;
}

std::string code(std::string_view text) {
  return text.empty() ? std::string{} : std::string{"`"}.append(text).append("`");
}

}  // namespace

std::string standard_text(const Key& key) {
  if (key.read == nullptr || key.required) return {};
  ServerConfig config;
  config.regions.resize(1);
  config.regions[0].access.resize(1);
  config.clients.resize(1);
  const std::optional<Value> value = key.read(config, {});
  return value ? yaml_text(key, *value) : std::string{};
}

std::vector<std::string> differing_keys(const ServerConfig& before, const ServerConfig& after) {
  std::vector<std::string> found;
  std::set<std::string, std::less<>> unlike;  // lists of other lengths
  const auto is_within_one = [&unlike](std::string_view path) {
    return unlike.contains(path.substr(0, path.find('['))) ||
           unlike.contains(path.substr(0, path.rfind('[')));
  };
  for (const Key& key : keys()) {
    const bool is_list = key.count != nullptr;
    if (key.read == nullptr && !is_list) continue;
    for_each_place(after, key, [&](const std::string& path, At at) {
      if (is_within_one(path)) return;
      const bool same = is_list ? key.count(before, at) == key.count(after, at)
                                : key.read(before, at) == key.read(after, at);
      if (same) return;
      found.push_back(path);
      if (is_list) unlike.insert(path);
    });
  }
  return found;
}

std::string_view to_string(KeyType type) noexcept {
  switch (type) {
    case KeyType::kMap: return "map";
    case KeyType::kList: return "list of maps";
    case KeyType::kText: return "text";
    case KeyType::kBoolean: return "boolean";
    case KeyType::kNumber: return "number";
    case KeyType::kSize: return "size";
    case KeyType::kDuration: return "duration";
    case KeyType::kChoice: return "word";
    case KeyType::kChoices: return "list of words";
    case KeyType::kNames: return "name, or list of names";
  }
  return "unknown";
}

std::vector<KeyDescription> server_keys() {
  std::vector<KeyDescription> result;
  for (const Key& key : keys())
    result.push_back({std::string{key.path}, key.type, range_text(key), standard_text(key),
                      key.required, std::string{key.help}});
  return result;
}

std::string reference_markdown() {
  std::string text =
      "| key | type | accepted | default | meaning |\n"
      "|---|---|---|---|---|\n";
  for (const Key& key : keys()) {
    const std::string standard = key.required ? "**required**" : code(standard_text(key));
    const std::string range = key.accepts.empty() ? range_text(key) : std::string{key.accepts};
    text.append("| ").append(code(key.path)).append(" | ").append(to_string(key.type));
    text.append(" | ").append(cell(range)).append(" | ").append(standard);
    text.append(" | ").append(cell(key.help)).append(" |\n");
  }
  return text;
}

std::string show(const ServerConfig& config) { return Printer{config}.print(); }

}  // namespace remora::config
