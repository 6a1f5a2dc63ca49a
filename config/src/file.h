#pragma once

#include <cstddef>
#include <string>
#include <tl/expected.hpp>

namespace remora::config {

/// The text of a regular file, or the fault. At most one byte more than a configuration may have,
/// so that the parser notices that it is too large. Never waits for a pipe.
tl::expected<std::string, std::string> read_file(const std::string& path);

/// `path` if it is absolute, otherwise relative to the folder of `file`.
std::string beside(const std::string& file, const std::string& path);

}  // namespace remora::config
