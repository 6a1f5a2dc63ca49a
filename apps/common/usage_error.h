#pragma once

/// The error of a command line, as one line with the remedy.

#include <CLI/CLI.hpp>
#include <string>

namespace remora::apps {

/// Explains `error`, which `app.parse()` has thrown. An unknown word has priority, with the nearest
/// known one, since a missing option is often only mistyped. Ends with the --help that shows the
/// correct form. `program` is the name by which the user calls it.
[[nodiscard]] std::string explain_usage(const CLI::App& app, const CLI::ParseError& error,
                                        const std::string& program);

}  // namespace remora::apps
