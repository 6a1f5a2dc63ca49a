#pragma once

/// The table of all keys, and the texts made from it.
///
/// The parser checks files with this table, and `show()` prints from it. config/docs/keys.md
/// carries `reference_markdown()` and `reload_markdown()`, the page remora.yaml(5)
/// `reference_manual()`, and config/docs/server.schema.json is `reference_json_schema()`. A test
/// compares them: documentation and behaviour cannot drift apart.
///
/// Thread safety: pure functions over constants.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <remora/config/server_config.h>

namespace remora::config {

/// The type of a key's value.
enum class KeyType : std::uint8_t {
  kMap,
  kList,  ///< of maps
  kText,
  kBoolean,   ///< `true` or `false`, nothing else
  kNumber,    ///< unsigned decimal
  kSize,      ///< parse_size()
  kDuration,  ///< parse_duration()
  kChoice,    ///< one of a few words
  kChoices,   ///< a list of distinct words out of a few
  kNames,     ///< one name, or a list of distinct names
};
/// As in the key table: "map", "text", "size".
[[nodiscard]] std::string_view to_string(KeyType type) noexcept;

/// One key of the file.
struct KeyDescription {
  std::string path;  ///< `pool.size`; the key of a list's element has `[]`: `regions[].name`
  KeyType type;
  std::string range;     ///< the accepted values: `4KiB to 1GiB`, `off, auto or required`
  std::string standard;  ///< the default as it would be written; empty: none
  bool required;         ///< must be written
  std::string help;      ///< one or two sentences
};

/// Every key of a server's file, a map before its members.
std::vector<KeyDescription> server_keys();

/// How a running server treats a key when it reads its file again (SIGHUP).
struct ReloadRule {
  std::string_view path;  ///< a key, or a map or list with all its keys
  bool taken;             ///< false: only the next start uses the new value
  std::string_view note;  ///< when it applies, or why a running server keeps its value
};
/// A rule for each key, either its own or that of its map or list.
[[nodiscard]] std::span<const ReloadRule> reload_rules() noexcept;
/// The rule for the key of this path, as it is in the table, or as differing_keys() returns it.
[[nodiscard]] const ReloadRule& reload_rule(std::string_view path) noexcept;
/// The limits of a running server after it has read its file again: `read` for those that can
/// change, `running` for the others.
[[nodiscard]] Limits reloaded(const Limits& running, const Limits& read) noexcept;
/// reload_rules() in Markdown, as in config/docs/keys.md.
[[nodiscard]] std::string reload_markdown();

/// The key table in Markdown, as in config/docs/keys.md.
[[nodiscard]] std::string reference_markdown();

/// The keys in the format of scdoc(5), as in apps/man/remora.yaml.5.scd.
[[nodiscard]] std::string reference_manual();

/// A JSON Schema (draft 2020-12) of the file: keys, types, words, the ranges of numbers and the
/// lengths of lists. It does not contain the ranges of sizes and durations, nor the rules between
/// keys: the parser refuses every file that the schema refuses, but not the reverse. It follows
/// YAML 1.2, in which `off` is text. Text of the form of json.dumps(indent=2).
[[nodiscard]] std::string reference_json_schema();

/// The effective configuration as YAML, each value with a comment that says where it came from:
/// `file:line`, `default`, or `program` for one that was set by hand. Reading the text back gives
/// the same configuration, except for the origins. Values from the environment are printed.
[[nodiscard]] std::string show(const ServerConfig& config);

/// The keys whose values differ, by their paths in `after` (`pool.size`, `clients[1].admin`), in
/// the order of the table; a list with more or fewer elements is named as a whole (`regions`).
/// Origins do not count. For `clients[].key` and `previous_key` only whether they are set is
/// compared.
std::vector<std::string> differing_keys(const ServerConfig& before, const ServerConfig& after);

}  // namespace remora::config
