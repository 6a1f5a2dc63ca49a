/// remora bench: the speed of one region or volume, in operations, bytes and nanoseconds.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include <remora/config/printable.h>
#include <remora/config/units.h>
#include <remora/metrics/http_endpoint.h>
#include <remora/metrics/process.h>
#include <remora/metrics/registry.h>

#include "cli/bench_options.h"
#include "cli/bench_report.h"
#include "cli/bench_run.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/opened_store.h"
#include "common/version.h"

namespace remora::apps {
namespace {

/// The results of a run, and the reason if it ended early.
struct BenchRun {
  std::vector<BenchResult> results;
  std::optional<Error> failure;
};

Rights rights_for(const BenchMix& mix) {
  Rights rights = Rights::kNone;
  if (mix.contains(BenchOp::kRead)) rights = rights | Rights::kRead;
  if (mix.contains(BenchOp::kWrite)) rights = rights | Rights::kWrite;
  if (mix.any_atomic()) rights = rights | Rights::kAtomic;
  return rights;
}

/// The measured part of the store in blocks of each size, or the reason why it cannot be measured:
/// checked before the first of them is measured.
tl::expected<std::vector<BenchPlan>, Failure> make_plans(const BenchOptions& options,
                                                         const OpenedStore& store) {
  const std::uint64_t size = store.size_bytes();
  const std::uint64_t there = size - std::min(size, options.offset);
  const std::uint64_t length = options.length.value_or(there);
  std::vector<BenchPlan> plans;
  for (const std::uint64_t block : options.sizes) {
    if (length > there || block > length)
      return fail(ExitCode::kRefused, "bench: blocks of " + std::to_string(block) + " bytes in " +
                                          std::to_string(length) + " bytes from offset " +
                                          std::to_string(options.offset) + " do not fit into " +
                                          store.name() + " of " + std::to_string(size) + " bytes");
    for (const std::size_t depth : options.depths) {
      BenchPlan plan;
      plan.mix = options.mix;
      plan.offset_bytes = options.offset;
      plan.block_bytes = block;
      plan.block_count = length / block;
      plan.depth = depth;
      plan.batch = options.batch;
      plan.sequential = options.sequential;
      plan.seed = *options.seed;
      plans.push_back(std::move(plan));
    }
  }
  return plans;
}

std::string label_of(const BenchPlan& plan, std::size_t number, std::size_t count) {
  std::string what = config::format_size(plan.block_bytes) + " depth " + std::to_string(plan.depth);
  if (count == 1) return what;
  return std::to_string(number) + "/" + std::to_string(count) + " " + what;
}

/// Runs one plan after the other; prints each result at once, unless the output is JSON.
BenchRun run_plans(const OpenedStore& store, const BenchOptions& options,
                   const std::vector<BenchPlan>& plans, bool telling) {
  BenchRun run;
  if (telling) print_bench_head(options, store);
  for (std::size_t i = 0; i < plans.size() && interrupted() == 0 && !run.failure; ++i) {
    const auto after = static_cast<double>(plans.size() - i - 1);
    BenchLive live{label_of(plans[i], i + 1, plans.size()),
                   after * (options.warmup + options.seconds)};
    auto result =
        run_bench(store, plans[i], options.threads, options.warmup, options.seconds, live);
    if (!result) {
      run.failure = result.error();
      break;
    }
    if (telling) print_bench_rows(options, *result);
    run.failure = result->failure;
    run.results.push_back(*result);
  }
  return run;
}

void linger(double seconds) {
  using Clock = BenchPlan::Clock;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>{seconds});
  while (Clock::now() < end && interrupted() == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
}

tl::expected<std::optional<metrics::HttpEndpoint>, Failure> expose(
    const std::shared_ptr<metrics::Registry>& registry, const Engine& engine,
    const std::string& address) {
  if (address.empty()) return std::nullopt;
  if (const Status added = metrics::register_process_metrics(*registry, kVersion); !added)
    return fail(added.error(), "--metrics");
  metrics::HttpOptions http;
  http.address = address;
  http.status_page = [&engine](const metrics::StatusQuery& query) {
    return engine.status_json(query);
  };
  auto endpoint = metrics::HttpEndpoint::start(registry, std::move(http));
  if (!endpoint) return fail(endpoint.error(), "--metrics");
  std::cerr << "remora: metrics at http://" << endpoint->address()
            << "/metrics, a live page at http://" << endpoint->address() << "/\n";
  return std::move(*endpoint);
}

/// The end of a run: prints failures, and decides the exit code.
Outcome conclude(const Globals& globals, const BenchOptions& options, const OpenedStore& store,
                 const BenchRun& run) {
  std::optional<Failure> failure;
  if (run.failure) failure.emplace(*run.failure, "bench");
  if (globals.json) {
    Json document = bench_json(options, store, run.results);
    if (failure)
      document["error"] = error_json(
          *failure, interrupted() != 0 ? 128 + interrupted() : to_int(failure->exit_code));
    print_json(document);
  }
  std::cout.flush();
  linger(options.linger);
  if (!failure) return ExitCode::kOk;
  std::cerr << "remora: " << config::printable(failure->text) << '\n';
  return failure->exit_code;
}

Outcome bench(const Globals& globals, BenchOptions options) {
  if (auto checked = check_store_uri(options.uri); !checked)
    return tl::make_unexpected(std::move(checked.error()));
  if (auto wrong = complete_bench_options(options)) return tl::make_unexpected(std::move(*wrong));
  auto registry = metrics::Registry::create();
  if (!registry) return fail(registry.error());
  EngineOptions engine_options;
  engine_options.registry = *registry;
  engine_options.spin = options.spin;
  engine_options.lanes = options.lanes;
  const auto opened =
      OpenedStore::open(globals, options.uri, rights_for(options.mix), "bench", engine_options);
  if (!opened) return tl::make_unexpected(opened.error());
  const OpenedStore& store = **opened;
  const auto endpoint = expose(*registry, store.engine(), options.metrics_address);
  if (!endpoint) return tl::make_unexpected(endpoint.error());
  const auto plans = make_plans(options, store);
  if (!plans) return tl::make_unexpected(plans.error());

  catch_interrupts();
  const BenchRun run = run_plans(store, options, *plans, !globals.json);
  return conclude(globals, options, store, run);
}

}  // namespace

void add_bench_command(Commands& commands) {
  const auto options = std::make_shared<BenchOptions>();
  CLI::App* const command = commands.add(
      "bench",
      "Measure a region or volume. write and add change its contents; cas swaps zeros for zeros");
  add_bench_options(command, *options);
  Commands::on_run(command, [&commands, options] { return bench(commands.globals(), *options); });
}

}  // namespace remora::apps
