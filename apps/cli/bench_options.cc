#include "cli/bench_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <random>

#include <remora/config/units.h>

namespace remora::apps {
namespace {

constexpr std::size_t kThreadsMax = 256;
/// The most combinations of sizes and depths in one run.
constexpr std::size_t kPointsMax = 256;
constexpr std::uint64_t kSizeDefault = 4096;

/// An option whose text `parse` turns into a value or into the sentence of an error.
template <typename Value, typename Parse>
CLI::Option* add_parsed(CLI::App* command, const std::string& name, Value& value, Parse parse,
                        const std::string& help) {
  return command->add_option_function<std::string>(
      name,
      [name, &value, parse](const std::string& text) {
        auto parsed = parse(text);
        if (!parsed) throw CLI::ValidationError(name, parsed.error());
        value = std::move(*parsed);
      },
      help);
}

/// A number of seconds. CLI::Range accepts "nan", which is neither below nor above any number.
CLI::Validator seconds_between(double min, double max) {
  const CLI::Range range{min, max};
  const auto check = [range](std::string& text) {
    double seconds = 0;
    if (CLI::detail::lexical_cast(text, seconds) && std::isnan(seconds))
      return "Value " + text + " is not a number of seconds";
    return range(text);
  };
  return CLI::Validator{check, range.get_description()};
}

tl::expected<std::uint64_t, std::string> parse_seed(const std::string& text) {
  const auto seed = config::parse_number(text);
  if (!seed) return tl::make_unexpected(config::explain_number(text));
  return *seed;
}

tl::expected<std::uint64_t, std::string> parse_length(const std::string& text) {
  const auto size = config::parse_size(text);
  if (!size) return tl::make_unexpected(config::explain_size(text));
  return *size;
}

/// A duration with a unit, or a plain 0, whose unit does not matter.
tl::expected<std::chrono::nanoseconds, std::string> parse_spin(const std::string& text) {
  if (text == "0") return std::chrono::nanoseconds{0};
  const auto spin = config::parse_duration(text);
  if (!spin) return tl::make_unexpected(config::explain_duration(text));
  return *spin;
}

void add_work_options(CLI::App* command, BenchOptions& options) {
  add_parsed(command, "--op", options.mix, BenchMix::parse,
             "read, write, cas, add, or a mix with weights: read:70,write:30 (read)")
      ->type_name("MIX");
  add_parsed(command, "--size", options.sizes, parse_size_list,
             "Bytes an operation, or several: 64B,4KiB (4KiB)")
      ->type_name("SIZES");
  add_parsed(command, "--depth", options.depths, parse_depth_list,
             "Operations in flight, a thread, or several: 1,32 (32)")
      ->type_name("DEPTHS");
  add_size(command, "--offset", options.offset, "Where in the region or volume to begin (0)");
  add_parsed(command, "--length", options.length, parse_length,
             "How much of it to use (to its end)")
      ->type_name("SIZE");
  CLI::Option* const random = command->add_flag("--random", options.random,
                                                "Blocks in random order over all of it (default)");
  command->add_flag("--sequential", options.sequential, "Blocks one after the other")
      ->excludes(random);
  add_parsed(command, "--seed", options.seed, parse_seed,
             "Decides the random order; printed, to repeat a run (another one each time)")
      ->type_name("NUMBER");
}

void add_run_options(CLI::App* command, BenchOptions& options) {
  command->add_option("--threads", options.threads, "Threads, each with a queue of its own (1)")
      ->check(CLI::Range(std::size_t{1}, kThreadsMax))
      ->type_name("N");
  command
      ->add_option("--lanes", options.lanes,
                   "Queue pairs or streams; threads take them in turn (1). Over shm there is one")
      ->check(CLI::Range(1U, kMaxLanes))
      ->type_name("N");
  command
      ->add_option("--batch", options.batch, "Operations a submit (as many as there is room for)")
      ->check(CLI::Range(std::size_t{1}, kMaxQueueDepth))
      ->type_name("N");
  command->add_option("--seconds", options.seconds, "How long to measure each size and depth (5)")
      ->check(seconds_between(0.01, 86400.0))
      ->type_name("S");
  command->add_option("--warmup", options.warmup, "How long to work before that (0.5)")
      ->check(seconds_between(0.0, 3600.0))
      ->type_name("S");
  add_parsed(command, "--spin", options.spin, parse_spin,
             "How long a waiting thread polls before it sleeps: 0 blocks, 1s polls (50us)")
      ->type_name("DURATION");
  command
      ->add_option("--metrics", options.metrics_address,
                   "Serve the engine's series for Prometheus while it runs")
      ->type_name("ADDRESS:PORT");
  command->add_option("--linger", options.linger, "Go on serving them so long after the run (0)")
      ->check(seconds_between(0.0, 86400.0))
      ->type_name("S");
}

std::string text_of(std::uint64_t size_bytes) { return config::format_size(size_bytes); }

/// Why atomics are not possible as requested; empty: they are.
std::string atomics_complaint(const BenchOptions& options) {
  const std::string op = "--op " + options.mix.text();
  if (options.offset % kAtomicBytes != 0)
    return op + " needs an --offset that is a multiple of 8, not " + text_of(options.offset) +
           "; the next below is " + text_of(options.offset - options.offset % kAtomicBytes);
  for (const std::uint64_t size : options.sizes) {
    if (options.mix.only_atomic() && size != kAtomicBytes)
      return op + " works on 8 bytes, not --size " + text_of(size) + "; leave --size out";
    if (size % kAtomicBytes != 0)
      return op + " needs a --size that is a multiple of 8, not " + text_of(size) +
             "; the next above is " + text_of((size / kAtomicBytes + 1) * kAtomicBytes);
  }
  return {};
}

/// The options that exclude each other; empty: none do.
std::string complaint(const BenchOptions& options) {
  if (options.mix.any_atomic())
    if (std::string text = atomics_complaint(options); !text.empty()) return text;
  const std::size_t points = options.sizes.size() * options.depths.size();
  if (points > kPointsMax)
    return "--size and --depth make " + std::to_string(points) + " runs; at most " +
           std::to_string(kPointsMax);
  const std::size_t shallowest = *std::min_element(options.depths.begin(), options.depths.end());
  if (options.batch > shallowest)
    return "--batch " + std::to_string(options.batch) + " is more than --depth " +
           std::to_string(shallowest) + ", so that a batch is never full; at most " +
           std::to_string(shallowest);
  const std::uint64_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
  if (options.length && *options.length < largest)
    return "--length " + text_of(*options.length) + " holds no block of --size " +
           text_of(largest) + "; at least " + text_of(largest);
  if (options.linger > 0 && options.metrics_address.empty())
    return "--linger goes on serving metrics, and no --metrics ADDRESS:PORT is given";
  return {};
}

}  // namespace

void add_bench_options(CLI::App* command, BenchOptions& options) {
  add_store_uri(command, options.uri);
  add_work_options(command, options);
  add_run_options(command, options);
}

std::optional<Failure> complete_bench_options(BenchOptions& options) {
  if (options.sizes.empty())
    options.sizes.push_back(options.mix.only_atomic() ? kAtomicBytes : kSizeDefault);
  if (!options.seed) options.seed = std::random_device{}();
  const std::string text = complaint(options);
  if (text.empty()) return std::nullopt;
  return Failure{ExitCode::kUsage,
                 "bench: " + text + "; 'remora bench --help' shows what is right"};
}

}  // namespace remora::apps
