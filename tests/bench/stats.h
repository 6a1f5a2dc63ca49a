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

/// One measured pair: higher is better.
struct Pair {
  double ours = 0;
  double peer = 0;
};

/// One line of the table: medians of both sides and ours / peer with its interval.
struct Row {
  std::string name;
  std::vector<Pair> pairs;
};

/// A table for people. `unit` names what the numbers are; `goal` of 0 means none.
std::string table(const std::vector<Row>& rows, const std::string& peer, const std::string& unit,
                  double goal);

/// Median time for a word to go to another thread and back, both spinning: which mode the machine
/// is in. 0 where there is only one processor.
double spin_round_trip_ns();

}  // namespace remora::bench
