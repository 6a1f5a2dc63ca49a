/// fault_load: the load as a program of its own, for scripts that break what lies between it and
/// its server.

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include <remora/remora.h>

#include "load.h"
#include "support/resources.h"
#include "support/stall_watch.h"

namespace {

volatile std::sig_atomic_t g_ended = 0;

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// A queue pair is destroyed only when its interface has given back its packets: as long as that
/// takes after a link that was down, and as much again.
constexpr std::chrono::seconds kGivenBackWithin{30};

/// What libraries make once and keep is made: the baseline comes after it. False: the server could
/// not be reached within `most`, or this is to end.
bool warm_up(const remora::fault::LoadOptions& options, milliseconds most) {
  std::string last;
  for (const auto until = Clock::now() + most; g_ended == 0 && Clock::now() < until;) {
    remora::EngineOptions with;
    with.client_name = options.client;
    with.operation_deadline = options.deadline;
    with.control_deadline = options.control_deadline;
    with.reconnect_for = milliseconds{0};
    const auto engine = remora::Engine::open(with);
    if (!engine) {
      last = engine.error().message();
    } else if (const auto region = engine->open_region(options.uri, remora::Rights::kAll);
               !region) {
      last = region.error().message();
    } else {
      std::vector<std::byte> bytes(64U << 10U);
      const remora::Status read = region->read(remora::ByteOffset{0}, bytes);
      if (read) return true;
      last = read.error().message();
    }
    std::this_thread::sleep_for(milliseconds{200});
  }
  std::cerr << "fault_load: no operation was ok: is the server there? " << last << '\n';
  return false;
}

/// I8: what this process holds that it did not, or no longer does. Not what others share in:
/// device objects but for its own, files in /dev/shm.
std::string not_as(const remora::test::Resources& baseline) {
  std::istringstream lines{baseline.difference(remora::test::Resources::now())};
  std::string text;
  for (std::string line; std::getline(lines, line);)
    if (line.rfind("device ", 0) != 0 && line.rfind("files in /dev/shm", 0) != 0)
      text += (text.empty() ? "" : "; ") + line;
  return text;
}

/// Waits for it to be given back. How long that took.
milliseconds expect_given_back(const remora::test::Resources& baseline,
                               remora::fault::LoadReport& report,
                               const remora::fault::LoadOptions& options) {
  const auto began = Clock::now();
  std::string left = not_as(baseline);
  while (!left.empty() && Clock::now() - began < kGivenBackWithin) {
    std::this_thread::sleep_for(milliseconds{50});
    left = not_as(baseline);
  }
  if (!left.empty()) {
    ++report.violations_total;
    report.violations.push_back("I8: not given back: " + left);
    options.on_violation(report.violations.back());
  }
  return std::chrono::duration_cast<milliseconds>(Clock::now() - began);
}

/// With `--lie`, to see that it is found: what is made here stays.
void leak(const std::string& lie) {
  if (lie == "keeps-descriptor") {
    static_cast<void>(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  } else if (lie == "keeps-thread") {
    std::thread{[] { std::this_thread::sleep_for(std::chrono::hours{1}); }}.detach();
  }
}

void log_from(const std::string& level) {
  remora::set_log_sink(
      [](const remora::LogLine& line) {
        const auto since = line.at.time_since_epoch();
        const auto ms = std::chrono::duration_cast<milliseconds>(since).count();
        std::cerr << ms / 1000 << '.' << std::setw(3) << std::setfill('0') << ms % 1000 << ' '
                  << line.text << '\n';
      },
      level == "debug"  ? remora::LogLevel::kDebug
      : level == "info" ? remora::LogLevel::kInfo
                        : remora::LogLevel::kWarning);
}

/// The command line.
struct Command {
  remora::fault::LoadOptions options;
  double seconds = 10;
  bool json = false;
  bool each_second = false;
  std::string lie;
  std::string log;
};

/// Nothing where the program may run, else its exit status.
std::optional<int> parse(int argc, char** argv, Command& command) {
  remora::fault::LoadOptions& options = command.options;
  CLI::App app{
      "A load on one region that verifies what it reads, counts how operations end and records its "
      "atomics.\nUses blocks 0 to 288 of 4 KiB of the region, with the default threads and depth."
      "\nExit status: 0 nothing is wrong, 1 a promise was broken, 2 misuse, 3 it could not run."};
  std::int64_t deadline_ms = options.deadline.count();
  std::int64_t control_ms = options.control_deadline.count();
  double reconnect_s = 30;
  app.add_option("--uri", options.uri, "remora://HOST:PORT/REGION?transport=...")->required();
  app.add_option("--seconds", command.seconds, "how long, at most")
      ->check(CLI::Range(0.1, 86400.0));
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
  app.add_flag("--varied", options.varied, "some writes are notices, some are zeroes");
  app.add_option("--deadline-ms", deadline_ms, "of an operation")->check(CLI::Range(1, 3600000));
  app.add_option("--control-deadline-ms", control_ms)->check(CLI::Range(1, 3600000));
  app.add_option("--reconnect-seconds", reconnect_s, "how long a session is tried to be resumed");
  app.add_flag("--fresh", options.fresh, "the region is new and zero: check that it is");
  app.add_option("--page", options.page, "file for what other processes want to know");
  app.add_option("--lie", command.lie, "seeds a violation of I8")
      ->check(CLI::IsMember{{"keeps-descriptor", "keeps-thread", "keeps-engine"}});
  app.add_flag("--each-second", command.each_second,
               "says on standard error how many operations were ok in each second");
  app.add_flag("--json", command.json, "the report as one line of JSON");
  app.add_option("--log", command.log,
                 "lines of the library from this level on go to standard error")
      ->check(CLI::IsMember{{"debug", "info", "warning"}});
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
  options.duration = milliseconds{static_cast<std::int64_t>(command.seconds * 1000)};
  options.deadline = milliseconds{deadline_ms};
  options.control_deadline = milliseconds{control_ms};
  options.reconnect_for = milliseconds{static_cast<std::int64_t>(reconnect_s * 1000)};
  options.at_rest = [] { std::cerr << "fault_load: at rest\n"; };
  if (command.each_second)
    options.each_second = [](std::uint64_t ok) { std::cerr << "fault_load: ok " << ok << '\n'; };
  options.on_violation = [](const std::string& text) {
    std::cerr << "fault_load: violation: " << text << '\n';
  };
  return std::nullopt;
}

void print_json(const remora::fault::LoadReport& report, milliseconds longest_stall,
                milliseconds given_back) {
  auto line = nlohmann::json::parse(report.json());
  line["longest_stall_ms"] = longest_stall.count();
  line["excused"] = report.excused;
  line["given_back_ms"] = given_back.count();
  std::cout << line.dump() << std::endl;
}

void print_text(const remora::fault::LoadReport& report, milliseconds longest_stall,
                milliseconds given_back) {
  std::cout << report.operations << " operations, " << report.ok << " ok";
  for (const auto& [code, count] : report.failed) std::cout << ", " << count << ' ' << code;
  std::cout << "; longest verdict " << report.longest_verdict_ms << " ms, "
            << report.violations_total << " violations; stood still for " << longest_stall.count()
            << " ms at most, " << report.excused
            << " were late for that alone; all was given back after " << given_back.count()
            << " ms\n";
  for (const std::string& text : report.violations) std::cout << "  " << text << '\n';
}

int run(int argc, char** argv) {
  Command command;
  if (const auto status = parse(argc, argv, command)) return *status;
  remora::fault::LoadOptions& options = command.options;
  std::signal(SIGTERM, [](int) { g_ended = 1; });
  std::signal(SIGINT, [](int) { g_ended = 1; });
  if (!command.log.empty()) log_from(command.log);
  remora::test::StallWatch watch;
  options.stalls = &watch;
  if (!warm_up(options, options.duration + options.control_deadline)) return 3;
  const auto baseline = remora::test::Resources::settled();
  std::optional<remora::Engine> kept;
  if (command.lie == "keeps-engine") {
    kept.emplace(remora::Engine::open({}).value());
    kept->open_region(options.uri, remora::Rights::kAll).value();
  }
  auto report = remora::fault::run_load(
      options, [] { return g_ended != 0; }, [] { std::cerr << "fault_load: under way\n"; });
  leak(command.lie);
  const milliseconds given_back = expect_given_back(baseline, report, options);
  (command.json ? print_json : print_text)(report, watch.longest(), given_back);
  if (report.ok == 0) std::cerr << "fault_load: no operation was ok: is the server there?\n";
  if (report.violations_total != 0) return 1;
  if (report.operations < options.operations) {
    std::cerr << "fault_load: " << report.operations << " operations instead of "
              << options.operations << " within " << command.seconds
              << " s: give it more --seconds\n";
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
