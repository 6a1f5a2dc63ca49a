#pragma once

/// The error of a command line, in one line that names the remedy.

#include <CLI/CLI.hpp>
#include <string>

namespace remora::apps {

/// Explains `error`, which `app.parse()` has thrown. A word that `app` does not know comes before
/// everything else, since what is missing is often only mistyped; with the nearest known one. Ends
/// with the --help that shows what is right. `program` is how the user calls it.
[[nodiscard]] std::string explain_usage(const CLI::App& app, const CLI::ParseError& error,
                                        const std::string& program);

}  // namespace remora::apps
