#include "doctor/finding.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace remora::apps::doctor {

std::string_view to_string(Colour colour) noexcept {
  switch (colour) {
    case Colour::kGreen: return "green";
    case Colour::kNotChecked: return "not checked";
    case Colour::kYellow: return "yellow";
    case Colour::kRed: return "red";
  }
  return "not checked";
}

Colour worst(const Findings& findings) noexcept {
  if (count(findings, Colour::kRed) != 0) return Colour::kRed;
  return count(findings, Colour::kYellow) != 0 ? Colour::kYellow : Colour::kGreen;
}

std::size_t count(const Findings& findings, Colour colour) noexcept {
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [colour](const Finding& finding) { return finding.colour == colour; }));
}

void append(Findings& findings, Findings more) {
  findings.insert(findings.end(), std::make_move_iterator(more.begin()),
                  std::make_move_iterator(more.end()));
}

}  // namespace remora::apps::doctor
