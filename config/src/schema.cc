// The JSON Schema of the file, made from the table of keys.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/config/describe.h>

#include "keys.h"

namespace remora::config {
namespace {

std::string json_text(std::string_view text) {
  std::string result{"\""};
  for (const char c : text) {
    if (c == '"' || c == '\\') result.push_back('\\');
    result.push_back(c);
  }
  return result.append("\"");
}

// A value of JSON; the members of an object stay in the order in which they are added.
class JsonValue {
 public:
  static JsonValue text(std::string_view text) { return JsonValue{json_text(text)}; }
  static JsonValue number(std::uint64_t number) { return JsonValue{std::to_string(number)}; }
  static JsonValue boolean(bool value) { return JsonValue{value ? "true" : "false"}; }
  static JsonValue object() { return JsonValue{Kind::kObject}; }
  static JsonValue array() { return JsonValue{Kind::kArray}; }

  JsonValue& add(std::string_view name, JsonValue value) {
    names_.emplace_back(name);
    values_.push_back(std::move(value));
    return *this;
  }
  JsonValue& add(JsonValue value) {
    values_.push_back(std::move(value));
    return *this;
  }
  [[nodiscard]] bool empty() const noexcept { return values_.empty(); }

  [[nodiscard]] std::string print(const std::string& margin = {}) const {
    if (kind_ == Kind::kScalar) return scalar_;
    const bool is_object = kind_ == Kind::kObject;
    if (values_.empty()) return is_object ? "{}" : "[]";
    std::string result{is_object ? "{" : "["};
    const std::string inner = margin + "  ";
    for (std::size_t i = 0; i < values_.size(); ++i) {
      result.append(i == 0 ? "\n" : ",\n").append(inner);
      if (is_object) result.append(json_text(names_[i])).append(": ");
      result.append(values_[i].print(inner));
    }
    return result.append("\n").append(margin).append(is_object ? "}" : "]");
  }

 private:
  enum class Kind : std::uint8_t { kScalar, kObject, kArray };
  explicit JsonValue(std::string scalar) : scalar_{std::move(scalar)} {}
  explicit JsonValue(Kind kind) : kind_{kind} {}

  Kind kind_ = Kind::kScalar;
  std::string scalar_{};
  std::vector<std::string> names_{};
  std::vector<JsonValue> values_{};
};

JsonValue reference(std::string_view name) {
  JsonValue value = JsonValue::object();
  value.add("$ref", JsonValue::text("#/$defs/" + std::string{name}));
  return value;
}

// The values that `value` accepts, or a variable of the environment in its place.
JsonValue or_variable(JsonValue value) {
  JsonValue either = JsonValue::array();
  either.add(std::move(value)).add(reference("variable"));
  JsonValue result = JsonValue::object();
  result.add("anyOf", std::move(either));
  return result;
}

bool is_digits(std::string_view word) {
  return std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Words of digits are numbers to a reader of YAML.
JsonValue word_list(const Key& key) {
  JsonValue words = JsonValue::array();
  for (const std::string_view word : key.words) words.add(JsonValue::text(word));
  for (const std::string_view word : key.words)
    if (is_digits(word)) words.add(JsonValue::number(std::stoull(std::string{word})));
  JsonValue result = JsonValue::object();
  result.add("enum", std::move(words));
  return result;
}

JsonValue schema_of_type(std::string_view type) {
  JsonValue value = JsonValue::object();
  value.add("type", JsonValue::text(type));
  return value;
}

JsonValue array_of(JsonValue items, std::uint64_t min, std::uint64_t max) {
  JsonValue value = schema_of_type("array");
  value.add("items", std::move(items));
  if (min > 0) value.add("minItems", JsonValue::number(min));
  if (max > 0) value.add("maxItems", JsonValue::number(max));
  return value;
}

JsonValue object_of(std::string_view path, JsonValue schema = JsonValue::object());

JsonValue type_schema(const Key& key) {
  switch (key.type) {
    case KeyType::kMap: return object_of(key.path);
    case KeyType::kList: return array_of(object_of(std::string{key.path} + "[]"), key.min, key.max);
    case KeyType::kBoolean: return or_variable(schema_of_type("boolean"));
    case KeyType::kNumber: {
      JsonValue number = schema_of_type("integer");
      number.add("minimum", JsonValue::number(key.min)).add("maximum", JsonValue::number(key.max));
      return or_variable(std::move(number));
    }
    case KeyType::kSize: return or_variable(reference("size"));
    case KeyType::kDuration: return or_variable(reference("duration"));
    case KeyType::kText: return reference("text");
    case KeyType::kChoice: return or_variable(word_list(key));
    case KeyType::kChoices: {
      JsonValue words = array_of(or_variable(word_list(key)), 1, key.words.size());
      words.add("uniqueItems", JsonValue::boolean(true));
      return words;
    }
    case KeyType::kNames: {
      JsonValue names = array_of(reference("text"), key.min, key.max);
      names.add("uniqueItems", JsonValue::boolean(true));
      JsonValue either = JsonValue::array();
      either.add(reference("text")).add(std::move(names));
      JsonValue result = JsonValue::object();
      result.add("anyOf", std::move(either));
      return result;
    }
  }
  return JsonValue::object();
}

// The rules that the type alone does not express.
std::string description(const Key& key) {
  std::string text{key.help};
  const bool told = key.type == KeyType::kMap || key.type == KeyType::kList ||
                    key.type == KeyType::kBoolean || key.type == KeyType::kChoice ||
                    key.type == KeyType::kChoices;
  if (told) return text;
  const std::string range = key.accepts.empty() ? range_text(key) : std::string{key.accepts};
  return text.append(" Accepted: ").append(range).append(".");
}

JsonValue key_schema(const Key& key) {
  JsonValue schema = type_schema(key);
  schema.add("description", JsonValue::text(description(key)));
  const std::string standard = standard_text(key);
  if (standard.empty() || key.type == KeyType::kChoices) return schema;
  const bool plain = key.type == KeyType::kBoolean;
  if (plain)
    schema.add("default", JsonValue::boolean(standard == "true"));
  else if (key.type == KeyType::kNumber)
    schema.add("default", JsonValue::number(std::stoull(standard)));
  else
    schema.add("default", JsonValue::text(standard));
  return schema;
}

// A map with a required member is required itself.
bool is_needed(const Key& key) {
  const std::span<const Key> all = keys();
  return key.required || (key.type == KeyType::kMap &&
                          std::any_of(all.begin(), all.end(), [&key](const Key& member) {
                            return member.required && parent(member.path) == key.path;
                          }));
}

// A secret is in the file, or in the file that its `_file` key names, but not in both.
JsonValue both_of_a_secret(std::string_view path) {
  JsonValue pairs = JsonValue::array();
  for (const Key& key : keys()) {
    if (parent(key.path) != path || !key.secret) continue;
    const std::string file = std::string{leaf(key.path)} + "_file";
    JsonValue pair = JsonValue::array();
    pair.add(JsonValue::text(leaf(key.path))).add(JsonValue::text(file));
    JsonValue both = JsonValue::object();
    both.add("required", std::move(pair));
    pairs.add(std::move(both));
  }
  return pairs;
}

// The members are added to those that `schema` has already.
JsonValue object_of(std::string_view path, JsonValue schema) {
  JsonValue members = JsonValue::object();
  JsonValue needed = JsonValue::array();
  for (const Key& key : keys()) {
    if (parent(key.path) != path) continue;
    members.add(leaf(key.path), key_schema(key));
    if (is_needed(key)) needed.add(JsonValue::text(leaf(key.path)));
  }
  schema.add("type", JsonValue::text("object"));
  schema.add("properties", std::move(members));
  schema.add("additionalProperties", JsonValue::boolean(false));
  if (!needed.empty()) schema.add("required", std::move(needed));
  if (JsonValue pairs = both_of_a_secret(path); !pairs.empty()) {
    JsonValue any = JsonValue::object();
    any.add("anyOf", std::move(pairs));
    schema.add("not", std::move(any));
  }
  return schema;
}

JsonValue pattern(std::string_view expression) {
  JsonValue value = schema_of_type("string");
  value.add("pattern", JsonValue::text(expression));
  return value;
}

JsonValue definitions() {
  JsonValue bytes = schema_of_type("integer");
  bytes.add("minimum", JsonValue::number(0));
  JsonValue sizes = JsonValue::array();
  sizes.add(std::move(bytes)).add(pattern("^(0|[1-9][0-9]*)(B|KiB|MiB|GiB|TiB)?$"));
  JsonValue size = JsonValue::object();
  size.add("anyOf", std::move(sizes));
  JsonValue types = JsonValue::array();
  types.add(JsonValue::text("string")).add(JsonValue::text("number"));
  types.add(JsonValue::text("boolean"));
  JsonValue text = JsonValue::object();
  text.add("type", std::move(types));
  JsonValue all = JsonValue::object();
  all.add("variable", pattern("\\$\\{[A-Za-z_][A-Za-z0-9_]*\\}"));
  all.add("size", std::move(size));
  all.add("duration", pattern("^(0|[1-9][0-9]*)(ns|us|ms|s|m|h)$"));
  all.add("text", std::move(text));
  return all;
}

}  // namespace

std::string reference_json_schema() {
  JsonValue schema = JsonValue::object();
  schema.add("$schema", JsonValue::text("https://json-schema.org/draft/2020-12/schema"));
  schema.add("title", JsonValue::text("The file of remora-server"));
  schema.add("$defs", definitions());
  return object_of("", std::move(schema)).print() + "\n";
}

}  // namespace remora::config
