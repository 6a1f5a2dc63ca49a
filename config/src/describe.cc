#include <algorithm>

#include <remora/config/describe.h>

#include "keys.h"
#include "rules.h"
#include "text.h"

namespace remora::config {
namespace {

constexpr std::size_t kCommentColumn = 40;

// What a file that says nothing about `key` gets; empty where there is nothing.
std::string standard_text(const Key& key) {
  if (key.read == nullptr || key.required) return {};
  ServerConfig config;
  config.regions.resize(1);
  const std::optional<Value> value = key.read(config, 0);
  return value ? yaml_text(key, *value) : std::string{};
}

class Printer {
 public:
  explicit Printer(const ServerConfig& config) : config_{config} {}

  std::string print() {
    for (const Key& key : keys()) {
      if (!parent(key.path).empty()) continue;
      if (key.type == KeyType::kMap)
        print_map(key);
      else if (key.type == KeyType::kList)
        print_regions(key);
      else
        print_value(key, std::string{key.path}, "", 0);
    }
    return std::move(text_);
  }

 private:
  void print_map(const Key& map) {
    text_.append(map.path).append(":\n");
    for (const Key& key : keys())
      if (parent(key.path) == map.path) print_value(key, std::string{key.path}, "  ", 0);
  }

  void print_regions(const Key& list) {
    if (config_.regions.empty()) {
      print_line(std::string{list.path} + ": []", "default");
      return;
    }
    text_.append(list.path).append(":\n");
    for (std::size_t i = 0; i < config_.regions.size(); ++i) {
      std::string indent = "  - ";
      for (const Key& key : keys()) {
        if (parent(key.path) != "regions[]") continue;
        print_value(key, region_path(i) + "." + std::string{leaf(key.path)}, indent, i);
        indent = "    ";
      }
    }
  }

  void print_value(const Key& key, const std::string& path, const std::string& indent,
                   std::size_t region) {
    const std::optional<Value> value = key.read(config_, region);
    const Key* const file = key.secret ? find_key(std::string{key.path} + "_file") : nullptr;
    const bool from_file = file != nullptr && file->read(config_, region);
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
