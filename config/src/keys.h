#pragma once

/// The table of all keys: the parser, validate(), show() and the documentation read nothing else.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <remora/config/describe.h>
#include <remora/config/server_config.h>

namespace remora::config {

/// kBoolean; kNumber and kSize; kDuration; kText and kChoice; kChoices and kNames.
using Value = std::variant<bool, std::uint64_t, std::chrono::nanoseconds, std::string,
                           std::vector<std::string>>;

/// The index of an element of a list; `inner`: the index in a list within that element.
struct At {
  std::size_t item = 0;
  std::size_t inner = 0;

  // NOLINTNEXTLINE(google-explicit-constructor): most keys know one list at most
  operator std::size_t() const noexcept { return item; }
};

struct Key {
  std::string_view path;
  KeyType type = KeyType::kMap;
  bool required = false;
  /// kNumber; kSize in bytes; kDuration in nanoseconds; kList and kNames in elements.
  std::uint64_t min = 0;
  std::uint64_t max = 0;
  /// kChoice, kChoices; kNames: words that are not allowed in a list.
  std::span<const std::string_view> words;
  std::string_view accepts;                   ///< kText, kNames: for people
  bool (*check)(std::string_view) = nullptr;  ///< kText; each name of kNames
  std::string_view help;
  bool secret = false;    ///< kText: its value is never shown
  bool discreet = false;  ///< kText: a wrong value is not shown
  /// kText: the field can only hold a valid value, and read() only tells whether it is set.
  bool typed = false;
  /// Scalars only. `at` is ignored for keys that are in no list.
  void (*write)(ServerConfig& config, At at, const Value& value) = nullptr;
  /// Empty if the field is not set.
  std::optional<Value> (*read)(const ServerConfig& config, At at) = nullptr;
  /// kList only.
  void (*resize)(ServerConfig& config, At at, std::size_t count) = nullptr;
  std::size_t (*count)(const ServerConfig& config, At at) = nullptr;
};

std::span<const Key> keys();

/// The key with exactly this path (`regions[].name`), or null.
const Key* find_key(std::string_view path);

/// The last component: `name` of `regions[].name`.
std::string_view leaf(std::string_view path);
/// The path without its last component: `regions[]`, or empty at the top.
std::string_view parent(std::string_view path);
/// Keys directly below `path`.
std::vector<std::string_view> children(std::string_view path);

/// `regions[3].name` of `regions[].name`.
std::string path_at(std::string_view path, At at);

/// Calls `visit` with every place where the key is, or would be, in this configuration.
void for_each_place(const ServerConfig& config, const Key& key,
                    const std::function<void(const std::string& path, At at)>& visit);

/// The accepted values, in words.
std::string range_text(const Key& key);

/// The value of the key in a file that does not name it, as YAML; empty: none.
std::string standard_text(const Key& key);

/// Empty if `value` is in the key's range, otherwise the fault.
std::string check_value(const Key& key, const Value& value);
/// The same for names[index] of a kNames; the names before it are valid.
std::string check_name(const Key& key, const std::vector<std::string>& names, std::size_t index);

/// The value as YAML: plain if that is safe, otherwise in double quotes.
std::string yaml_text(const Key& key, const Value& value);

}  // namespace remora::config
