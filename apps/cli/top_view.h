#pragma once

/// The view of a process in `remora top`, as lines of text.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/top_series.h"

namespace remora::apps {

/// One process, with the data that is known now.
struct TopTarget {
  std::string address;
  TopSeries series{};
  Json status = Json::object();
  /// Bytes served to each session at the last query, and its time; by id.
  Json status_before = Json::object();
  double seconds_between = 0;  ///< between the two queries
  std::string trouble{};       ///< why there is no answer; empty: there is one
  double silent_seconds = 0;   ///< since the last answer
};

/// At most `height` lines of at most `width` columns; without colours or control characters,
/// whatever names a peer has.
[[nodiscard]] std::vector<std::string> top_lines(const TopTarget& target, std::size_t width,
                                                 std::size_t height);
/// The same numbers for a script; apps/docs/top.md has the keys.
[[nodiscard]] Json top_json(const TopTarget& target);

/// A row of block characters in eighths, one for each value, scaled to the largest; a blank for
/// NaN.
[[nodiscard]] std::string sparkline(const std::vector<double>& values);
/// The number of columns that a terminal uses for UTF-8 text of single-width characters.
[[nodiscard]] std::size_t columns_of(const std::string& text);

}  // namespace remora::apps
