#pragma once

/// The exit codes of Remora's programs: few codes, each a class of causes on which a script can
/// act.

#include <cstdint>
#include <string_view>

#include <remora/result.h>

namespace remora::apps {

/// Exit statuses of remora and remora-server; apps/docs/scripting.md has a table of them. A program
/// that a signal ended exits with 128 + the signal's number.
enum class ExitCode : std::uint8_t {
  kOk = 0,
  kNotSwapped = 1,     ///< `cas`: another value was there; `doctor --strict`: a warning
  kUsage = 2,          ///< the command line is wrong: option, argument, URI
  kRefused = 3,        ///< no such object, or not allowed; `doctor`: a fault
  kConnection = 4,     ///< no server there, connection lost, timed out, address taken
  kLocal = 5,          ///< a file, memory or device of this machine, or a server's memory
  kIndeterminate = 6,  ///< a write or an atomic may or may not have taken effect
  kConfiguration = 7,  ///< the configuration file is wrong
  kDifferent = 8,      ///< `put --verify`, `get --verify`: the bytes are not the same
  kInternal = 70,      ///< a bug of the program
};

/// The class that `error` belongs to. Operations on local files end in " file" ("open file"): then
/// kNotFound means a file of this machine, not an object of the server.
[[nodiscard]] ExitCode exit_code_of(const Error& error) noexcept;

/// One word, for JSON: "usage", "refused", "connection", "local", ….
[[nodiscard]] std::string_view to_string(ExitCode code) noexcept;

[[nodiscard]] constexpr int to_int(ExitCode code) noexcept { return static_cast<int>(code); }

}  // namespace remora::apps
