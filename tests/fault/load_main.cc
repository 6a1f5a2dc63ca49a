/// fault_load: the load as a program of its own, for scripts that break what lies between it and
/// its server.

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <poll.h>
#include <unistd.h>

#include "load.h"

namespace {

volatile std::sig_atomic_t g_ended = 0;

int run(int argc, char** argv) {
  using std::chrono::milliseconds;
  remora::fault::LoadOptions options;
  CLI::App app{
      "A load on one region that verifies what it reads, counts how operations end and records its "
      "atomics.\nUses blocks 0 to 288 of 4 KiB of the region, with the default threads and depth."
      "\nExit status: 0 nothing is wrong, 1 a promise was broken, 2 misuse, 3 it could not run."};
  double seconds = 10;
  std::int64_t deadline_ms = options.deadline.count();
  std::int64_t control_ms = options.control_deadline.count();
  double reconnect_s = 30;
  bool json = false;
  app.add_option("--uri", options.uri, "remora://HOST:PORT/REGION?transport=...")->required();
  app.add_option("--seconds", seconds, "how long, at most")->check(CLI::Range(0.1, 86400.0));
  app.add_option("--operations", options.operations,
                 "end when so many have ended; fewer in --seconds: exit status 3")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000'000}));
  app.add_option("--seed", options.seed, "of everything that is random");
  app.add_option("--queues", options.queue_workers, "threads with a queue")
      ->check(CLI::Range(0, 64));
  app.add_option("--threads", options.sync_workers, "threads with synchronous calls")
      ->check(CLI::Range(0, 64));
  app.add_option("--depth", options.depth, "of a queue")->check(CLI::Range(1, 1024));
  app.add_option("--lanes", options.lanes, "of the session")->check(CLI::Range(1, 8));
  app.add_option("--rate", options.rate, "most operations a second");
  app.add_option("--records", options.records, "most atomics that are recorded and made");
  app.add_option("--reads", options.reads, "parts of the operations");
  app.add_option("--writes", options.writes);
  app.add_option("--swaps", options.swaps);
  app.add_option("--adds", options.adds);
  app.add_option("--deadline-ms", deadline_ms, "of an operation")->check(CLI::Range(1, 3600000));
  app.add_option("--control-deadline-ms", control_ms)->check(CLI::Range(1, 3600000));
  app.add_option("--reconnect-seconds", reconnect_s, "how long a session is tried to be resumed");
  app.add_flag("--fresh", options.fresh, "the region is new and zero: check that it is");
  app.add_option("--page", options.page, "file for what other processes want to know");
  app.add_flag("--json", json, "the report as one line of JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& wrong) {
    return app.exit(wrong) == 0 ? 0 : 2;
  }
  if (options.reads + options.writes + options.swaps + options.adds == 0 ||
      options.queue_workers + options.sync_workers == 0 || options.rate == 0) {
    std::cerr << "fault_load: there is nothing to do: give it threads, kinds of operations and a "
                 "rate\n";
    return 2;
  }
  options.duration = milliseconds{static_cast<std::int64_t>(seconds * 1000)};
  options.deadline = milliseconds{deadline_ms};
  options.control_deadline = milliseconds{control_ms};
  options.reconnect_for = milliseconds{static_cast<std::int64_t>(reconnect_s * 1000)};
  options.at_rest = [] { std::cerr << "fault_load: at rest\n"; };
  options.on_violation = [](const std::string& text) {
    std::cerr << "fault_load: violation: " << text << '\n';
  };
  std::signal(SIGTERM, [](int) { g_ended = 1; });
  std::signal(SIGINT, [](int) { g_ended = 1; });
  const auto report = remora::fault::run_load(
      options, [] { return g_ended != 0; }, [] { std::cerr << "fault_load: under way\n"; });
  if (json) {
    std::cout << report.json() << std::endl;
  } else {
    std::cout << report.operations << " operations, " << report.ok << " ok";
    for (const auto& [code, count] : report.failed) std::cout << ", " << count << ' ' << code;
    std::cout << "; longest verdict " << report.longest_verdict_ms << " ms, "
              << report.violations_total << " violations\n";
    for (const std::string& text : report.violations) std::cout << "  " << text << '\n';
  }
  if (report.ok == 0) std::cerr << "fault_load: no operation was ok: is the server there?\n";
  if (report.violations_total != 0) return 1;
  if (report.operations < options.operations) {
    std::cerr << "fault_load: " << report.operations << " operations instead of "
              << options.operations << " within " << seconds << " s: give it more --seconds\n";
    return 3;
  }
  return report.ok == 0 ? 3 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& thrown) {
    std::cerr << "fault_load: " << thrown.what() << '\n';
    return 3;
  }
}
