/// remora bench: what one region gives, in operations, bytes and microseconds.

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include <remora/config/units.h>
#include <remora/metrics/http_endpoint.h>
#include <remora/metrics/process.h>
#include <remora/metrics/registry.h>

#include "cli/bench_worker.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "common/version.h"

namespace remora::apps {
namespace {

using Clock = BenchPlan::Clock;
using Seconds = std::chrono::duration<double>;

constexpr std::size_t kThreadsMax = 256;
constexpr std::size_t kAtomicBytes = 8;

struct BenchOptions {
  std::string uri;
  std::string op = "read";
  std::uint64_t size = 4096;
  bool size_given = false;
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> length;
  std::size_t depth = 32;
  std::size_t threads = 1;
  std::size_t batch = 0;
  double seconds = 5;
  double warmup = 0.5;
  double linger = 0;
  bool sequential = false;
  bool random = false;  // says what is the default anyway
  std::string metrics_address;
};

/// What a run came to.
struct BenchResult {
  metrics::LatencyHistogram latency_ns;
  FailureCounts failures{};
  std::optional<Error> failure;
  double seconds = 0;
  double cpu_seconds = 0;
};

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Rights rights_for(BenchOp op) {
  switch (op) {
    case BenchOp::kRead: return Rights::kRead;
    case BenchOp::kWrite: return Rights::kWrite;
    case BenchOp::kCompareSwap:
    case BenchOp::kFetchAdd: return Rights::kAtomic;
  }
  return Rights::kRead;
}

BenchOp parse_op(const std::string& text) {
  if (text == "write") return BenchOp::kWrite;
  if (text == "cas") return BenchOp::kCompareSwap;
  if (text == "add") return BenchOp::kFetchAdd;
  return BenchOp::kRead;
}

/// The measured part of the region in blocks, or why there is none.
tl::expected<BenchPlan, Failure> make_plan(const BenchOptions& options, const Region& region) {
  BenchPlan plan;
  plan.op = parse_op(options.op);
  plan.offset_bytes = options.offset;
  plan.block_bytes = options.size;
  plan.depth = options.depth;
  plan.batch = options.batch;
  plan.sequential = options.sequential;
  const std::uint64_t size = region.size_bytes();
  const std::uint64_t there = size - std::min(size, options.offset);
  const std::uint64_t length = options.length.value_or(there);
  if (length > there || plan.block_bytes > length)
    return fail(ExitCode::kRefused, "bench: blocks of " + std::to_string(plan.block_bytes) +
                                        " bytes in " + std::to_string(length) +
                                        " bytes from offset " + std::to_string(options.offset) +
                                        " do not fit into region " + region.info().name + " of " +
                                        std::to_string(size) + " bytes");
  plan.block_count = length / plan.block_bytes;
  return plan;
}

/// Sleeps until `until`, drawing a line on a terminal; ends early on a signal or when every worker
/// has stopped.
void watch(const std::vector<BenchWorker>& workers, const BenchPlan& plan, Clock::time_point until,
           const std::atomic<std::size_t>& running) {
  const bool drawing = stderr_is_terminal();
  std::uint64_t before = 0;
  auto drawn_at = Clock::now();
  while (Clock::now() < until && interrupted() == 0 && running.load() > 0) {
    const auto step =
        std::min<Clock::duration>(until - Clock::now(), std::chrono::milliseconds{20});
    std::this_thread::sleep_for(std::max<Clock::duration>(step, Clock::duration::zero()));
    const auto now = Clock::now();
    if (!drawing || now - drawn_at < std::chrono::milliseconds{500}) continue;
    std::uint64_t done = 0;
    for (const BenchWorker& worker : workers) done += worker.completed();
    const double rate = static_cast<double>(done - before) / Seconds(now - drawn_at).count();
    std::array<char, 160> line{};
    std::snprintf(line.data(), line.size(), "bench  %s  %.0f ops/s  %s  %.0f s left",
                  now < plan.measure_from ? "warm-up" : "measuring", rate,
                  human_rate(rate * static_cast<double>(plan.block_bytes)).c_str(),
                  Seconds(plan.measure_to - now).count());
    draw_line(line.data());
    before = done;
    drawn_at = now;
  }
}

Result<BenchResult> measure(const Engine& engine, const Region& region, const BenchOptions& options,
                            BenchPlan plan) {
  std::vector<BenchWorker> workers;
  for (std::uint32_t i = 0; i < options.threads; ++i) {
    auto worker = BenchWorker::make(engine, region, plan, i);
    if (!worker) return worker.error();
    workers.push_back(std::move(*worker));
  }
  const auto whole = [](double seconds) {
    return std::chrono::duration_cast<Clock::duration>(Seconds{seconds});
  };
  plan.measure_from = Clock::now() + whole(options.warmup);
  plan.measure_to = plan.measure_from + whole(options.seconds);
  std::atomic<bool> stop{false};
  std::atomic<std::size_t> running{workers.size()};
  std::vector<std::thread> threads;
  threads.reserve(workers.size());
  for (BenchWorker& worker : workers)
    threads.emplace_back([&worker, &plan, &stop, &running] {
      worker.run(plan, stop);
      --running;
    });
  watch(workers, plan, plan.measure_from, running);
  const double cpu_before = cpu_seconds();
  watch(workers, plan, plan.measure_to, running);
  BenchResult result;
  result.cpu_seconds = cpu_seconds() - cpu_before;
  result.seconds =
      std::max(0.0, Seconds(std::min(Clock::now(), plan.measure_to) - plan.measure_from).count());
  stop = true;
  for (std::thread& thread : threads) thread.join();
  if (stderr_is_terminal()) draw_line("");
  for (const BenchWorker& worker : workers) {
    result.latency_ns.merge(worker.latency_ns());
    for (std::size_t i = 0; i < result.failures.size(); ++i)
      result.failures[i] += worker.failures()[i];
    if (!result.failure) result.failure = worker.first_failure();
  }
  return result;
}

Json failures_json(const FailureCounts& failures) {
  Json counts = Json::object();
  for (std::size_t i = 0; i < failures.size(); ++i)
    if (failures[i] > 0) counts[std::string{to_string(static_cast<Code>(i))}] = failures[i];
  return counts;
}

Json to_json(const BenchOptions& options, const Region& region, const BenchResult& result) {
  const auto& latency = result.latency_ns;
  const auto count = static_cast<double>(latency.count());
  const double rate = result.seconds > 0 ? count / result.seconds : 0;
  return Json{{"op", options.op},
              {"transport", to_string(region.transport())},
              {"size_bytes", options.size},
              {"depth", options.depth},
              {"threads", options.threads},
              {"batch", options.batch},
              {"pattern", options.sequential ? "sequential" : "random"},
              {"seconds", result.seconds},
              {"operations", latency.count()},
              {"operations_per_second", rate},
              {"bytes_per_second", rate * static_cast<double>(options.size)},
              {"latency_ns",
               {{"mean", latency.mean()},
                {"p50", latency.percentile(50)},
                {"p90", latency.percentile(90)},
                {"p99", latency.percentile(99)},
                {"p999", latency.percentile(99.9)},
                {"max", latency.max()}}},
              {"cpu_ns_per_operation", count > 0 ? result.cpu_seconds * 1e9 / count : 0},
              {"errors", failures_json(result.failures)}};
}

void print_report(const BenchOptions& options, const Region& region, const BenchResult& result) {
  const auto& latency = result.latency_ns;
  const auto count = static_cast<double>(latency.count());
  const double rate = result.seconds > 0 ? count / result.seconds : 0;
  const auto us = [&latency](double percent) {
    return static_cast<double>(latency.percentile(percent)) / 1000;
  };
  std::printf("%s %s %s over %s, depth %zu, %zu thread%s, %.1f s\n",
              options.sequential ? "sequential" : "random", options.op.c_str(),
              config::format_size(options.size).c_str(),
              std::string{to_string(region.transport())}.c_str(), options.depth, options.threads,
              options.threads == 1 ? "" : "s", result.seconds);
  std::printf("  %.0f ops/s  %s  %.2f us CPU an operation\n", rate,
              human_rate(rate * static_cast<double>(options.size)).c_str(),
              count > 0 ? result.cpu_seconds * 1e6 / count : 0);
  std::printf("  latency us: p50 %.1f  p90 %.1f  p99 %.1f  p99.9 %.1f  max %.1f\n", us(50), us(90),
              us(99), us(99.9), static_cast<double>(latency.max()) / 1000);
  for (std::size_t i = 0; i < result.failures.size(); ++i)
    if (result.failures[i] > 0)
      std::printf("  errors: %s: %ju\n", std::string{to_string(static_cast<Code>(i))}.c_str(),
                  std::uintmax_t{result.failures[i]});
}

void linger(double seconds) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds{seconds});
  while (Clock::now() < end && interrupted() == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
}

tl::expected<std::optional<metrics::HttpEndpoint>, Failure> expose(
    const std::shared_ptr<metrics::Registry>& registry, const std::string& address) {
  if (address.empty()) return std::nullopt;
  if (const Status added = metrics::register_process_metrics(*registry, kVersion); !added)
    return fail(added.error(), "--metrics");
  metrics::HttpOptions http;
  http.address = address;
  auto endpoint = metrics::HttpEndpoint::start(registry, std::move(http));
  if (!endpoint) return fail(endpoint.error(), "--metrics");
  std::cerr << "remora: metrics at http://" << endpoint->address() << "/metrics\n";
  return std::move(*endpoint);
}

Outcome bench(const Globals& globals, BenchOptions options) {
  if (const auto uri = parse_uri(options.uri, true); !uri) return tl::make_unexpected(uri.error());
  const BenchOp op = parse_op(options.op);
  if (op == BenchOp::kCompareSwap || op == BenchOp::kFetchAdd) {
    if (options.size_given && options.size != kAtomicBytes)
      return fail(ExitCode::kUsage, "bench: --op " + options.op + " works on 8 bytes, not --size " +
                                        config::format_size(options.size));
    options.size = kAtomicBytes;
  }
  if (options.size == 0) return fail(ExitCode::kUsage, "bench: --size must be at least 1B");
  if (options.batch > options.depth)
    return fail(ExitCode::kUsage, "bench: --batch is more than --depth");
  auto registry = metrics::Registry::create();
  if (!registry) return fail(registry.error());
  const auto endpoint = expose(*registry, options.metrics_address);
  if (!endpoint) return tl::make_unexpected(endpoint.error());
  EngineOptions engine_options;
  engine_options.registry = *registry;
  const auto engine = open_engine(globals, engine_options);
  if (!engine) return fail(engine.error(), "bench");
  const auto region = engine->open_region(options.uri, rights_for(op));
  if (!region) return fail(region.error(), "bench");
  const auto plan = make_plan(options, *region);
  if (!plan) return tl::make_unexpected(plan.error());

  catch_interrupts();
  const auto result = measure(*engine, *region, options, *plan);
  if (!result) return fail(result.error(), "bench");
  std::optional<Failure> failure;
  if (result->failure) failure.emplace(*result->failure, "bench");
  if (globals.json) {
    Json document = to_json(options, *region, *result);
    if (failure)
      document["error"] = error_json(
          *failure, interrupted() != 0 ? 128 + interrupted() : to_int(failure->exit_code));
    print_json(document);
  } else {
    print_report(options, *region, *result);
  }
  std::cout.flush();
  linger(options.linger);
  if (!failure) return ExitCode::kOk;
  std::cerr << "remora: " << failure->text << '\n';
  return failure->exit_code;
}

void add_options(CLI::App* command, BenchOptions& options) {
  add_uri(command, options.uri);
  command->add_option("--op", options.op, "read, write, cas or add (read)")
      ->check(CLI::IsMember({"read", "write", "cas", "add"}))
      ->type_name("OP");
  add_size(command, "--offset", options.offset, "Where in the region to begin (0)");
  command->add_option("--depth", options.depth, "Operations in flight, a thread (32)")
      ->check(CLI::Range(std::size_t{1}, kQueueDepthMax))
      ->type_name("N");
  command->add_option("--threads", options.threads, "Threads, each with a queue of its own (1)")
      ->check(CLI::Range(std::size_t{1}, kThreadsMax))
      ->type_name("N");
  command
      ->add_option("--batch", options.batch, "Operations a submit (as many as there is room for)")
      ->check(CLI::Range(std::size_t{1}, kQueueDepthMax))
      ->type_name("N");
  command->add_option("--seconds", options.seconds, "How long to measure (5)")
      ->check(CLI::Range(0.01, 86400.0))
      ->type_name("S");
  command->add_option("--warmup", options.warmup, "How long to work before that (0.5)")
      ->check(CLI::Range(0.0, 3600.0))
      ->type_name("S");
  CLI::Option* const random = command->add_flag(
      "--random", options.random, "Blocks in random order over the whole region (default)");
  command->add_flag("--sequential", options.sequential, "Blocks one after the other")
      ->excludes(random);
  command
      ->add_option("--metrics", options.metrics_address,
                   "Serve the engine's series for Prometheus while it runs")
      ->type_name("ADDRESS:PORT");
  command->add_option("--linger", options.linger, "Go on serving them so long after the run (0)")
      ->check(CLI::Range(0.0, 86400.0))
      ->type_name("S");
}

}  // namespace

void add_bench_command(Commands& commands) {
  const auto options = std::make_shared<BenchOptions>();
  CLI::App* const command = commands.add(
      "bench", "Measure a region. write and add change its contents; cas swaps zeros for zeros");
  add_options(command, *options);
  CLI::Option* const size = add_size(command, "--size", options->size, "Bytes an operation (4KiB)");
  const auto length = std::make_shared<std::uint64_t>();
  CLI::Option* const given =
      add_size(command, "--length", *length, "How much of the region to use (to its end)");
  Commands::on_run(command, [&commands, options, size, length, given] {
    options->size_given = size->count() > 0;
    if (given->count() > 0) options->length = *length;
    return bench(commands.globals(), *options);
  });
}

}  // namespace remora::apps
