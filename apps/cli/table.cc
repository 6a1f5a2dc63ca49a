#include "cli/table.h"

#include <algorithm>
#include <cstddef>
#include <iomanip>
#include <iostream>
#include <sstream>

#include <remora/config/printable.h>

namespace remora::apps {

void print_table(std::vector<std::vector<std::string>> rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (auto& row : rows)
    for (std::string& cell : row) cell = config::printable(cell);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const auto& row : rows) {
    std::ostringstream line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i + 1 < row.size())
        line << std::left << std::setw(static_cast<int>(widths[i] + 2)) << row[i];
      else
        line << row[i];
    }
    std::cout << line.str() << '\n';
  }
}

std::string hex_digits(std::uint64_t value) {
  std::ostringstream text;
  text << std::hex << std::setfill('0') << std::setw(16) << value;
  return text.str();
}

}  // namespace remora::apps
