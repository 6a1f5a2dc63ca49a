#pragma once

/// The view of a process in `remora top`, as lines of text.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/top_series.h"

namespace remora::apps {

/// One process, as it is known now.
struct TopTarget {
  std::string address;
  TopSeries series{};
  Json status = Json::object();
  /// Bytes served to each session at the last query, and its time; by id.
  Json status_before = Json::object();
  double seconds_between = 0;  ///< of the two
  std::string trouble{};       ///< why there is no answer; empty: there is
  double silent_seconds = 0;   ///< since the last answer
};

/// At most `height` lines of at most `width` columns; without colours or control characters,
/// whatever names a peer has thought of.
[[nodiscard]] std::vector<std::string> top_lines(const TopTarget& target, std::size_t width,
                                                 std::size_t height);
/// The same figures for a script; apps/docs/top.md has the keys.
[[nodiscard]] Json top_json(const TopTarget& target);

/// A row of eighths of a block, one a value, the highest as the largest is; a blank for NaN.
[[nodiscard]] std::string sparkline(const std::vector<double>& values);
/// Columns that a terminal takes for UTF-8 text of single-width characters.
[[nodiscard]] std::size_t columns_of(const std::string& text);

}  // namespace remora::apps
