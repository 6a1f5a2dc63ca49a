/// Reads measured pairs from stdin, one a line: `NAME OURS PEER` (higher is better), and prints the
/// table of their ratios.
///
///   ratio_table PEER UNIT [GOAL] < pairs

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>

#include "stats.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: ratio_table PEER UNIT [GOAL] < pairs (NAME OURS PEER a line)\n";
    return 2;
  }
  std::vector<remora::bench::Row> rows;
  std::string name;
  remora::bench::Pair pair;
  while (std::cin >> name >> pair.ours >> pair.peer) {
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&](const remora::bench::Row& known) { return known.name == name; });
    if (row == rows.end()) row = rows.insert(rows.end(), {name, {}});
    row->pairs.push_back(pair);
  }
  if (!std::cin.eof() || rows.empty()) {
    std::cerr << "ratio_table: expected lines of NAME OURS PEER\n";
    return 1;
  }
  std::cout << remora::bench::table(rows, argv[1], argv[2], argc > 3 ? std::atof(argv[3]) : 0);
  return 0;
}
