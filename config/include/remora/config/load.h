#pragma once

/// Reads a YAML file into a checked ServerConfig, or returns the list of its faults.
///
/// Strict: unknown, duplicate, ill-typed and out-of-range keys are errors, and so are anchors,
/// aliases, tags and more than one document. The type of a value follows from its key and never
/// from its spelling, so `name: 010` is the text 010, `yes` is not a boolean, and quotes change
/// nothing. A file with a syntax error gets that one diagnostic; otherwise every fault is listed.
///
/// `${NAME}` in a value is replaced by the environment variable NAME; a variable that is not set is
/// an error. `$${` writes a literal `${`. The value of a variable is text, never YAML.
///
/// Blocking: reads a file. Thread safety: as getenv(3).

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include <remora/config/diagnostics.h>
#include <remora/config/server_config.h>

namespace remora::config {

/// Larger files are refused.
inline constexpr std::size_t kFileBytesMax = 8U << 20U;
/// Maps and lists nested deeper than this are refused.
inline constexpr std::size_t kDepthMax = 32;

/// Looks up a variable; empty when it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// getenv(3).
std::optional<std::string> process_environment(const std::string& name);

/// Reads, parses and checks the file at `path`, and the files of secrets that it names.
/// `ServerConfig::origins` tells where each value was written.
tl::expected<ServerConfig, Diagnostics> load_server(
    const std::string& path, const Environment& environment = process_environment);

/// The same for text in memory; `filename` is only used in diagnostics and origins. Opens no file:
/// a text that names the file of a secret is refused.
tl::expected<ServerConfig, Diagnostics> parse_server(
    std::string_view text, const std::string& filename,
    const Environment& environment = process_environment);

/// For a configuration that load_server() has read: a text for each secret in a file that every
/// user of the machine may read, with the key, the file and the remedy. For a warning: key files
/// are checked when they are read.
std::vector<std::string> exposed_secrets(const ServerConfig& config);
/// The files of exposed_secrets(), in the same order.
std::vector<std::string> exposed_secret_files(const ServerConfig& config);

}  // namespace remora::config
