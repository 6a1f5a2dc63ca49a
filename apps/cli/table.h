#pragma once

/// Tables and identities for people.

#include <cstdint>
#include <string>
#include <vector>

namespace remora::apps {

/// Prints rows of equal length, the first one a heading; columns are as wide as their widest cell.
/// Control characters in a cell are escaped: names come from a server.
void print_table(std::vector<std::vector<std::string>> rows);
/// Sixteen digits: "00000000000000ff".
[[nodiscard]] std::string hex_digits(std::uint64_t value);

}  // namespace remora::apps
