#pragma once

/// Code that all subcommands of `remora` share: global options, the end of a command, and its
/// output.

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include <remora/remora.h>

#include "common/exit_code.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the name is not ours
class App;
class Option;
class Validator;
}  // namespace CLI

namespace remora::apps {

using Json = nlohmann::ordered_json;

/// The reason why a command failed, for a person and for a script.
struct Failure {
  /// `context` names the action and its object: "put disk.img".
  // NOLINTNEXTLINE(google-explicit-constructor): a Result's error is a command's failure.
  Failure(const Error& cause, std::string_view context = {});
  Failure(ExitCode code, std::string message) : exit_code{code}, text{std::move(message)} {}

  ExitCode exit_code;
  std::string text;            ///< one line: what, where, what to do
  std::optional<Error> error;  ///< the engine's error, if it was one
};

/// The object under "error" in every JSON document of a command that failed. `exit_status`: the
/// real status of the program, which a signal may change.
[[nodiscard]] Json error_json(const Failure& failure, int exit_status);

/// The end of a command: an exit code (not only kOk: cas, bench), or a Failure that main() prints.
using Outcome = tl::expected<ExitCode, Failure>;
[[nodiscard]] inline auto fail(const Error& error, std::string_view context = {}) {
  return tl::make_unexpected(Failure{error, context});
}
[[nodiscard]] inline auto fail(ExitCode code, std::string text) {
  return tl::make_unexpected(Failure{code, std::move(text)});
}

/// Options that may stand before or after any subcommand.
struct Globals {
  bool json = false;
  bool verbose = false;
  std::chrono::nanoseconds timeout = std::chrono::seconds{10};
  std::string client{};    ///< the name under which servers have this client; empty: none
  std::string key_file{};  ///< the key that proves the name
};

// Options with the project's own units. A value that does not parse is a usage error whose text
// names the correct form.
/// says what would be right.

/// `64KiB`; see config::parse_size().
CLI::Option* add_size(CLI::App* app, const std::string& name, std::uint64_t& value,
                      const std::string& help);
/// `250ms`; see config::parse_duration().
CLI::Option* add_duration(CLI::App* app, const std::string& name, std::chrono::nanoseconds& value,
                          const std::string& help);
/// 64 bits, decimal or 0x…; `-1` means 2^64 - 1.
CLI::Option* add_word(CLI::App* app, const std::string& name, std::uint64_t& value,
                      const std::string& help);
/// Refuses an option or an argument that is given but empty, as by an unset variable of a script.
[[nodiscard]] CLI::Validator not_empty();
/// The positional URI of a region (or of a server, when `of_server`).
CLI::Option* add_uri(CLI::App* app, std::string& value, bool of_server = false);
/// The positional URI of a region or of a volume.
CLI::Option* add_store_uri(CLI::App* app, std::string& value);

/// Parses a URI, and checks that it names (or does not name) a region.
[[nodiscard]] tl::expected<Uri, Failure> parse_uri(const std::string& text, bool wants_region);

/// The engine of this process; the global options complete `options`.
[[nodiscard]] Result<Engine> open_engine(const Globals& globals, EngineOptions options = {});

/// A session with the server of the URI, on its own engine, which it keeps alive.
[[nodiscard]] tl::expected<Session, Failure> open_session(const Globals& globals,
                                                          const std::string& uri);

/// Prints one JSON document on standard output.
void print_json(const Json& document);

}  // namespace remora::apps
