#pragma once

// The table of all keys: the parser, validate(), show() and the documentation read nothing else.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <remora/config/describe.h>
#include <remora/config/server_config.h>

namespace remora::config {

// kBoolean; kNumber and kSize; kDuration; kText and kChoice; kChoices.
using Value = std::variant<bool, std::uint64_t, std::chrono::nanoseconds, std::string,
                           std::vector<std::string>>;

struct Key {
  std::string_view path;
  KeyType type = KeyType::kMap;
  bool required = false;
  std::uint64_t min = 0;  // kNumber; kSize in bytes; kDuration in nanoseconds; kList in elements
  std::uint64_t max = 0;
  std::span<const std::string_view> words;    // kChoice, kChoices
  std::string_view accepts;                   // kText: for people
  bool (*check)(std::string_view) = nullptr;  // kText
  std::string_view help;
  bool secret = false;  // kText: its value is never shown
  // Scalars only. `region` is the index for keys below regions[], otherwise ignored.
  void (*write)(ServerConfig& config, std::size_t region, const Value& value) = nullptr;
  // Empty where the field is not set.
  std::optional<Value> (*read)(const ServerConfig& config, std::size_t region) = nullptr;
};

std::span<const Key> keys();

// The key with exactly this path (`regions[].name`), or null.
const Key* find_key(std::string_view path);

// The last component: `name` of `regions[].name`.
std::string_view leaf(std::string_view path);
// The path without its last component: `regions[]`, or empty at the top.
std::string_view parent(std::string_view path);
// Keys directly below `path`.
std::vector<std::string_view> children(std::string_view path);

// What is accepted, for people.
std::string range_text(const Key& key);

// Empty when `value` is in the key's range, else what is wrong with it.
std::string check_value(const Key& key, const Value& value);

// The value as YAML: plain where that is safe, else in double quotes.
std::string yaml_text(const Key& key, const Value& value);

}  // namespace remora::config
