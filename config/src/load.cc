#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <unordered_map>
#include <utility>

#include <remora/config/load.h>
#include <remora/config/units.h>

#include "file.h"
#include "keys.h"
#include "report.h"
#include "rules.h"
#include "text.h"
#include "yaml_tree.h"

namespace remora::config {
namespace {

// The result of replacing `${NAME}` in a scalar.
struct Expanded {
  std::string text;
  std::string variables;  // `A, B`
};

bool is_variable_name(std::string_view name) {
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && !(name[0] >= '0' && name[0] <= '9') &&
         std::all_of(name.begin(), name.end(), is_word);
}

tl::expected<Expanded, std::string> expand(std::string_view text, const Environment& environment) {
  Expanded result;
  while (true) {
    const std::size_t start = text.find("${");
    if (start == std::string_view::npos) break;
    if (start > 0 && text[start - 1] == '$') {  // $${ is a literal ${
      result.text.append(text.substr(0, start - 1)).append("${");
      text.remove_prefix(start + 2);
      continue;
    }
    const std::size_t end = text.find('}', start);
    if (end == std::string_view::npos)
      return tl::make_unexpected(std::string{"'${' without '}': '$${' writes a literal '${'"});
    const std::string name{text.substr(start + 2, end - start - 2)};
    if (!is_variable_name(name))
      return tl::make_unexpected(in_quotes(name) +
                                 " is no name of an environment variable: letters, digits and _");
    const std::optional<std::string> value = environment ? environment(name) : std::nullopt;
    if (!value) return tl::make_unexpected("the environment variable " + name + " is not set");
    result.text.append(text.substr(0, start)).append(*value);
    result.variables.append(result.variables.empty() ? "" : ", ").append(name);
    text.remove_prefix(end + 1);
  }
  result.text.append(text);
  return result;
}

std::string join_path(const std::string& path, std::string_view name) {
  return path.empty() ? std::string{name} : path + "." + std::string{name};
}

// Walks the tree along the key table and fills the struct.
class Binder {
 public:
  // `read_files`: whether `file` is a file, so that the files that it names may be read, too.
  Binder(const std::string& file, const Environment& environment, bool read_files)
      : file_{file}, environment_{environment}, read_files_{read_files}, report_{file} {}

  tl::expected<ServerConfig, Diagnostics> bind(const YamlNode& root) {
    report_.note_place("", root.place);
    if (root.kind == YamlNode::Kind::kMap)
      bind_map(root, "", "", {});
    else
      report_.fault("", not_a_map("", root.kind));
    if (read_files_) read_secret_files();
    if (report_.good("")) check_rules(config_, report_);
    Diagnostics diagnostics = report_.take();
    if (!diagnostics.empty()) return tl::make_unexpected(std::move(diagnostics));
    return std::move(config_);
  }

 private:
  static std::string not_a_map(std::string_view table_path, YamlNode::Kind found) {
    const std::vector<std::string_view> names = children(table_path);
    return "expected a map with the keys " + join(names, "and") + ", found " +
           std::string{describe(found)};
  }

  // `path` names the map in messages, `table_path` in the key table (`regions[]`).
  void bind_map(const YamlNode& map, const std::string& path, const std::string& table_path,
                At at) {
    std::unordered_map<std::string_view, std::size_t> seen;  // key -> line
    for (std::size_t i = 0; i < map.keys.size(); ++i) {
      const YamlNode& name = map.keys[i];
      if (name.kind != YamlNode::Kind::kScalar) {
        report_.fault_at(name.place, join_path(path, "?"),
                         "a key must be text, found " + std::string{describe(name.kind)});
        continue;
      }
      const auto [first, is_new] = seen.emplace(name.scalar, name.place.line);
      const Key* const key = find_key(join_path(table_path, name.scalar));
      // A dotted key would be found by its path although it is in the wrong map.
      const bool known = key != nullptr && leaf(key->path) == name.scalar;
      const std::string key_path = join_path(path, known ? name.scalar : printable(name.scalar));
      if (!is_new)
        report_.fault_at(name.place, key_path,
                         "duplicate key, first written in line " + std::to_string(first->second));
      else if (known)
        bind_value(map.items[i], name.place, *key, key_path, at);
      else
        fault_unknown(name, path, table_path);
    }
    fault_missing(path, table_path);
  }

  void fault_unknown(const YamlNode& name, const std::string& path, const std::string& table_path) {
    const std::vector<std::string_view> names = children(table_path);
    const std::string shown{in_quotes(name.scalar)};
    const std::string text = shown.substr(1, shown.size() - 2);
    std::string message = "unknown key";
    if (const std::string_view near = nearest(name.scalar, names); !near.empty()) {
      message.append(": did you mean '").append(near).append("'?");
      meant_.insert(join_path(path, near));
    } else if (const std::string_view elsewhere = find_elsewhere(name.scalar); !elsewhere.empty()) {
      message.append(": did you mean '").append(elsewhere).append("'?");
    } else {
      message.append(": valid here are ").append(join(names, "and"));
    }
    report_.fault_at(name.place, join_path(path, text), std::move(message));
  }

  // The only key of another map whose last component is `name`, or the path that `name` spells.
  static std::string_view find_elsewhere(std::string_view name) {
    std::string_view found;
    for (const Key& key : keys()) {
      if (key.path == name) return key.path;
      if (leaf(key.path) != name) continue;
      if (!found.empty()) return {};
      found = key.path;
    }
    return found;
  }

  void fault_missing(const std::string& path, const std::string& table_path) {
    for (const Key& key : keys()) {
      const std::string key_path = join_path(path, leaf(key.path));
      const bool here = parent(key.path) == table_path;
      if (here && key.required && !report_.written(key_path) && !meant_.contains(key_path))
        report_.fault(key_path, "required: " + range_text(key));
      // If a map is left out, its required members are missing, too.
      if (!here && key.required && table_path.empty() &&
          key.path.find("[]") == std::string_view::npos && !report_.written(parent(key.path)) &&
          !meant_.contains(std::string{parent(key.path)}))
        report_.fault(std::string{key.path}, "required: " + range_text(key));
    }
  }

  void bind_value(const YamlNode& node, const Place& key_place, const Key& key,
                  const std::string& path, At at) {
    const bool is_null = node.kind == YamlNode::Kind::kNull;
    report_.note_place(path, is_null ? key_place : node.place);
    if (is_null) {
      report_.fault(path, "has no value: give it one or remove the key");
      return;
    }
    switch (key.type) {
      case KeyType::kMap:
        if (node.kind == YamlNode::Kind::kMap)
          bind_map(node, path, std::string{key.path}, at);
        else
          report_.fault(path, not_a_map(key.path, node.kind));
        return;
      case KeyType::kList: bind_list(node, key, path, at); return;
      case KeyType::kChoices: bind_words(node, key, path, at); return;
      case KeyType::kNames: bind_names(node, key, path, at); return;
      default: break;
    }
    if (node.kind != YamlNode::Kind::kScalar) {
      report_.fault(path, "expected a single value (" + range_text(key) + "), found " +
                              std::string{describe(node.kind)});
      return;
    }
    const auto expanded = expand_scalar(node, path, key.secret);
    if (!expanded) return;
    const auto value = convert(expanded->text, key);
    if (!value)
      report_.fault(path, value.error());
    else
      store(*value, key, path, at, expanded->variables);
  }

  void bind_list(const YamlNode& node, const Key& key, const std::string& path, At outer) {
    if (node.kind != YamlNode::Kind::kSequence) {
      report_.fault(path, "expected a list of maps, found " + std::string{describe(node.kind)});
      return;
    }
    if (node.items.size() < key.min || node.items.size() > key.max) {
      report_.fault(path, range_text(key) + ", found " + std::to_string(node.items.size()));
      return;
    }
    key.resize(config_, outer, node.items.size());
    const std::string table_path = std::string{key.path} + "[]";
    const bool nested = key.path.find("[]") != std::string_view::npos;
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      const YamlNode& item = node.items[i];
      const std::string item_path = path + "[" + std::to_string(i) + "]";
      // yaml-cpp gives an empty element the place of the next token.
      report_.note_place(item_path, item.kind == YamlNode::Kind::kNull ? node.place : item.place);
      if (item.kind == YamlNode::Kind::kMap)
        bind_map(item, item_path, table_path, nested ? At{outer.item, i} : At{i, 0});
      else
        report_.fault(item_path, not_a_map(table_path, item.kind));
    }
  }

  void bind_words(const YamlNode& node, const Key& key, const std::string& path, At at) {
    if (node.kind != YamlNode::Kind::kSequence) {
      report_.fault(path, "expected a list, such as [" + std::string{key.words[0]} + "], found " +
                              std::string{describe(node.kind)});
      return;
    }
    std::vector<std::string> words;
    std::string variables;
    for (const YamlNode& item : node.items) {
      if (item.kind != YamlNode::Kind::kScalar) {
        report_.fault_at(
            item.place, path,
            "expected " + range_text(key) + ", found " + std::string{describe(item.kind)});
        return;
      }
      const auto expanded = expand_scalar(item, path);
      if (!expanded) return;
      words.push_back(expanded->text);
      if (!expanded->variables.empty())
        variables.append(variables.empty() ? "" : ", ").append(expanded->variables);
    }
    store(Value{std::move(words)}, key, path, at, variables);
  }

  // A fault has the place of its element.
  void bind_names(const YamlNode& node, const Key& key, const std::string& path, At at) {
    const bool single = node.kind == YamlNode::Kind::kScalar;
    if (!single && node.kind != YamlNode::Kind::kSequence) {
      report_.fault(path, "expected a single value or a list (" + range_text(key) + "), found " +
                              std::string{describe(node.kind)});
      return;
    }
    const std::span<const YamlNode> items = single ? std::span{&node, 1} : std::span{node.items};
    std::vector<std::string> names;
    std::string variables;
    for (const YamlNode& item : items) {
      // yaml-cpp gives an empty element the place of the next token.
      const Place& place = item.kind == YamlNode::Kind::kNull ? node.place : item.place;
      if (item.kind != YamlNode::Kind::kScalar) {
        report_.fault_at(place, path, "expected a name, found " + std::string{describe(item.kind)});
        return;
      }
      const auto expanded = expand_scalar(item, path);
      if (!expanded) return;
      names.push_back(expanded->text);
      if (!expanded->variables.empty())
        variables.append(variables.empty() ? "" : ", ").append(expanded->variables);
    }
    for (std::size_t i = 0; i < names.size() && names.size() <= key.max; ++i) {
      if (std::string wrong = check_name(key, names, i); !wrong.empty())
        return report_.fault_at(items[i].place, path, std::move(wrong));
    }
    store(Value{std::move(names)}, key, path, at, variables);
  }

  std::optional<Expanded> expand_scalar(const YamlNode& node, const std::string& path,
                                        bool secret = false) {
    auto expanded = expand(node.scalar, environment_);
    if (expanded) return std::move(*expanded);
    // Text that is no variable may be a part of the secret itself.
    const bool names_one = expanded.error().starts_with("the environment variable ");
    report_.fault_at(node.place, path,
                     secret && !names_one
                         ? "holds a '${' that is no variable: '$${' writes a literal '${'"
                         : expanded.error());
    return std::nullopt;
  }

  static tl::expected<Value, std::string> convert(const std::string& text, const Key& key) {
    switch (key.type) {
      case KeyType::kBoolean:
        if (text == "true" || text == "false") return Value{text == "true"};
        return tl::make_unexpected("expected true or false, found " + in_quotes(text));
      case KeyType::kNumber:
        if (const auto number = parse_number(text)) return Value{*number};
        return tl::make_unexpected(explain_number(text));
      case KeyType::kSize:
        if (const auto size_bytes = parse_size(text)) return Value{*size_bytes};
        return tl::make_unexpected(explain_size(text));
      case KeyType::kDuration:
        if (const auto duration = parse_duration(text)) return Value{*duration};
        return tl::make_unexpected(explain_duration(text));
      default: return Value{text};
    }
  }

  void store(const Value& value, const Key& key, const std::string& path, At at,
             const std::string& variables) {
    std::string message = check_value(key, value);
    if (!message.empty()) {
      report_.fault(path, std::move(message));
      return;
    }
    key.write(config_, at, value);
    config_.origins.insert_or_assign(path, Origin{file_, report_.place(path).line, variables});
  }

  // The text of the file that `token_file` names becomes the value of `token`.
  void read_secret_files() {
    for (const Key& key : keys()) {
      const Key* const from = key.secret ? find_key(std::string{key.path} + "_file") : nullptr;
      if (from == nullptr) continue;
      for_each_place(config_, key, [&](const std::string& path, At at) {
        const std::string named_by = path + "_file";
        if (!report_.written(named_by) || !report_.good(named_by)) return;
        if (report_.written(path)) {
          report_.fault(named_by, "stands beside " + path + ": remove one of them");
          return;
        }
        const std::string name = std::get<std::string>(from->read(config_, at).value_or(Value{}));
        const std::string wrong = read_secret_file(key, at, name);
        if (!wrong.empty()) report_.fault(named_by, in_quotes(name) + ": " + wrong);
      });
    }
  }

  // The fault of the file; empty: none.
  std::string read_secret_file(const Key& key, At at, const std::string& name) {
    if (key.typed) {
      const auto secret = read_key_file(beside(file_, name));
      if (!secret) return explain_key_file(secret.error());
      std::string text = secret->to_hex();
      Value value{std::in_place_type<std::string>, std::move(text)};
      key.write(config_, at, value);
      auto& kept = std::get<std::string>(value);
      ::explicit_bzero(kept.data(), kept.size());
      return {};
    }
    auto text = read_file(beside(file_, name));
    if (!text) return text.error();
    text->resize(text->find_last_not_of("\r\n") + 1);  // an editor ends a file with a newline
    const Value value{std::move(*text)};
    std::string wrong = check_value(key, value);
    if (wrong.empty()) key.write(config_, at, value);
    return wrong;
  }

  // The message already contains the name of the file.
  static std::string explain_key_file(const Error& error) {
    if (error.system_errno() != 0) return error.with_subject({}).message();
    return std::string{error.operation()};
  }

  const std::string& file_;
  const Environment& environment_;
  const bool read_files_;
  Report report_;
  std::set<std::string> meant_;  // paths that an unknown key was probably meant for
  ServerConfig config_;
};

Diagnostics one(const std::string& file, std::string message) {
  Diagnostics diagnostics;
  diagnostics.add({file, 0, 0, {}, std::move(message)});
  return diagnostics;
}

}  // namespace

std::optional<std::string> process_environment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return std::string{value};
}

namespace {

tl::expected<ServerConfig, Diagnostics> parse_and_bind(std::string_view text,
                                                       const std::string& filename,
                                                       const Environment& environment,
                                                       bool read_files) {
  auto tree = parse_yaml(text);
  if (!tree) {
    Diagnostics diagnostics;
    tree.error().file = filename;
    diagnostics.add(std::move(tree.error()));
    return tl::make_unexpected(std::move(diagnostics));
  }
  if (tree->kind == YamlNode::Kind::kNull)
    return tl::make_unexpected(one(filename, "says nothing: at least pool.size is required"));
  return Binder{filename, environment, read_files}.bind(*tree);
}

}  // namespace

tl::expected<ServerConfig, Diagnostics> parse_server(std::string_view text,
                                                     const std::string& filename,
                                                     const Environment& environment) {
  return parse_and_bind(text, filename, environment, /*read_files=*/false);
}

tl::expected<ServerConfig, Diagnostics> load_server(const std::string& path,
                                                    const Environment& environment) {
  const auto text = read_file(path);
  if (!text) return tl::make_unexpected(one(path, text.error()));
  return parse_and_bind(*text, path, environment, /*read_files=*/true);
}

}  // namespace remora::config
