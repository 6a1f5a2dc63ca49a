#pragma once

#include <cstddef>
#include <string>
#include <tl/expected.hpp>

namespace remora::config {

/// The text of a regular file, or what is wrong with it. At most one byte more than a configuration
/// may have, so that the parser sees that it is too large. Never waits for a pipe.
tl::expected<std::string, std::string> read_file(const std::string& path);

/// `path` where it is absolute, else as seen from the folder of `file`.
std::string beside(const std::string& file, const std::string& path);

}  // namespace remora::config
