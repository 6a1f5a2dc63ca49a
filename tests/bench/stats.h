#pragma once

/// What the benchmarks say of pairs: a machine's speed drifts, so two programs are measured turn by
/// turn and compared within each pair.

#include <cstddef>
#include <string>
#include <vector>

namespace remora::bench {

/// A median and the interval that holds the true one with at least 95 % confidence.
struct Estimate {
  double median = 0;
  double low = 0;
  double high = 0;
  std::size_t count = 0;
};

/// The interval is that of order statistics (binomial with p = 1/2): no assumption on how the
/// values are distributed. With fewer than 6 values it is all of them. Empty: all zero.
Estimate estimate(std::vector<double> values);

/// One measured pair, in the unit of its row.
struct Pair {
  double ours = 0;
  double peer = 0;
};

/// What the ratio ours / peer should be. Of rates at least `ratio`, of times (`at_most`) at most.
/// A ratio of 0 means that there is no goal.
struct Goal {
  double ratio = 0;
  bool at_most = false;

  /// ">=0.9", "<=1.2", "0.9" (as ">=0.9") or "-" (none). False: none of these.
  static bool parse(const std::string& text, Goal& into);
  /// Reached when the interval reaches it: a goal is missed only where that is sure.
  [[nodiscard]] bool met(const Estimate& found) const noexcept;
  [[nodiscard]] std::string text() const;
};

/// One line of the table: medians of both sides and ours / peer with its interval.
struct Row {
  std::string name;
  std::string peer;
  std::string unit;
  Goal goal;
  std::vector<Pair> pairs;
};

/// A table for people.
std::string table(const std::vector<Row>& rows);

/// Median time for a word to go to another thread and back, both spinning: which mode the machine
/// is in. 0 where there is only one processor.
double spin_round_trip_ns();

}  // namespace remora::bench
