/// Reads measured pairs from stdin, one a line, and prints the table of their ratios. Lines that
/// begin alike make one row, in the order in which the first of them came.
///
///   ratio_table < pairs       NAME<tab>PEER<tab>UNIT<tab>GOAL<tab>OURS<tab>PEER'S
///   ratio_table --spin        the round trip by spinning between two threads, in nanoseconds
///
/// GOAL is `>=RATIO` (rates), `<=RATIO` (times) or `-`.

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>

#include "stats.h"

namespace {

using remora::bench::Goal;
using remora::bench::Pair;
using remora::bench::Row;

bool parse(const std::string& line, Row& row, Pair& pair) {
  std::istringstream fields{line};
  std::string goal;
  std::string ours;
  std::string peer;
  const auto next = [&fields](std::string& into) { return !!std::getline(fields, into, '\t'); };
  if (!next(row.name) || !next(row.peer) || !next(row.unit) || !next(goal) || !next(ours) ||
      !next(peer))
    return false;
  pair = {std::atof(ours.c_str()), std::atof(peer.c_str())};
  return Goal::parse(goal, row.goal) && pair.ours > 0 && pair.peer > 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view{argv[1]} == "--spin") {
    std::cout << static_cast<int>(remora::bench::spin_round_trip_ns()) << '\n';
    return 0;
  }
  if (argc != 1) {
    std::cerr << "usage: ratio_table < pairs | ratio_table --spin\n";
    return 2;
  }
  std::vector<Row> rows;
  for (std::string line; std::getline(std::cin, line);) {
    Row found;
    Pair pair;
    if (!parse(line, found, pair)) {
      std::cerr << "ratio_table: not NAME, PEER, UNIT, GOAL and two numbers: " << line << '\n';
      return 1;
    }
    auto row = std::find_if(rows.begin(), rows.end(), [&found](const Row& known) {
      return known.name == found.name && known.peer == found.peer && known.unit == found.unit;
    });
    if (row == rows.end()) row = rows.insert(rows.end(), found);
    row->pairs.push_back(pair);
  }
  if (rows.empty()) {
    std::cerr << "ratio_table: no pairs on stdin\n";
    return 1;
  }
  std::cout << remora::bench::table(rows);
  return 0;
}
