#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <remora/result.h>

namespace remora::detail {

/// Numbers of processors as the system counts them: ascending, without duplicates.
using Processors = std::vector<unsigned>;

/// Parses "0-3,8". Errors: kInvalidArgument (its subject is the wrong part).
Result<Processors> parse_processors(std::string_view text);
/// Formats as "0-3,8".
std::string to_text(const Processors& processors);

}  // namespace remora::detail
