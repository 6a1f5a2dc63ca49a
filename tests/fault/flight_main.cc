/// fault_flight: breaks lanes with 64 requests provably in flight, for two_guests_faults.sh.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>

#include "flight.h"

namespace {

int run(int argc, char** argv) {
  remora::fault::FlightOptions options;
  CLI::App app{
      "Breaks lanes with 64 requests provably in flight, and says how they ended.\n"
      "Exit status: 0 nothing is wrong, 1 a promise was broken, 2 misuse, 3 it could not run."};
  std::string lie;
  std::int64_t stop_ms = options.stop.count();
  std::string end;
  app.add_option("--uri", options.uri, "a region of 2 MiB for this alone, over rdma")->required();
  app.add_option("--end", end,
                 "the side that breaks the lane: client, server, raw-client, raw-server")
      ->required();
  app.add_option("--hold", options.hold, "command that holds packets back; in, out or both follows")
      ->required();
  app.add_option("--release", options.release, "command that lets them pass again")->required();
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 100000));
  app.add_option("--stop-ms", stop_ms, "how long the client stands still, with --end server")
      ->check(CLI::Range(1, 60000));
  app.add_option("--seed", options.seed, "for the line");
  app.add_option("--lie", lie, "seeds a violation: lets-pass, writes-late, counts-wrong");
  const int stopper = remora::fault::start_stopper();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& wrong) {
    return app.exit(wrong) == 0 ? 0 : 2;
  }
  const auto end_of = remora::fault::lane_end_of(end);
  const bool seeded = lie == "lets-pass" || lie == "writes-late" || lie == "counts-wrong";
  if (!end_of || (!lie.empty() && !seeded)) {
    std::cerr << "fault_flight: unknown --end or --lie (see --help)\n";
    return 2;
  }
  options.end = *end_of;
  options.stop = std::chrono::milliseconds{stop_ms};
  options.lets_pass = lie == "lets-pass";
  options.writes_late = lie == "writes-late";
  options.counts_wrong = lie == "counts-wrong";
  if (stopper < 0) throw std::runtime_error{"no process to stop this one"};
  const auto report = remora::fault::run_flights(options, stopper);
  std::cout << report.line(options.end, options.seed) << std::endl;
  constexpr std::size_t kShown = 10;
  for (std::size_t i = 0; i < std::min(kShown, report.violations.size()); ++i)
    std::cout << "  " << report.violations[i] << '\n';
  if (report.violations.size() > kShown)
    std::cout << "  ... " << report.violations.size() << " in all\n";
  return report.violations.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& thrown) {
    std::cerr << "fault_flight: " << thrown.what() << '\n';
    return 3;
  }
}
