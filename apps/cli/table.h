#pragma once

/// Tables and identities for people.

#include <cstdint>
#include <string>
#include <vector>

namespace remora::apps {

/// Prints rows of equal length, the first a heading; columns as wide as their widest cell. Nothing
/// in a cell moves the cursor: a server's names are the server's.
void print_table(std::vector<std::vector<std::string>> rows);
/// Sixteen digits: "00000000000000ff".
[[nodiscard]] std::string hex_digits(std::uint64_t value);

}  // namespace remora::apps
