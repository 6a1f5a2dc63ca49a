#include "cli/bench_report.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include <remora/config/units.h>

#include "cli/human.h"

namespace remora::apps {
namespace {

double per(double amount, double count) { return count > 0 ? amount / count : 0; }

Json failures_json(const FailureCounts& failures) {
  Json counts = Json::object();
  for (std::size_t i = 0; i < failures.size(); ++i)
    if (failures[i] > 0) counts[std::string{to_string(static_cast<Code>(i))}] = failures[i];
  return counts;
}

void add_tally(Json& object, const BenchTally& tally, std::uint64_t bytes, double seconds) {
  const auto& latency = tally.latency_ns;
  object["operations"] = tally.operations();
  object["operations_per_second"] = per(static_cast<double>(tally.operations()), seconds);
  object["bytes"] = bytes;
  object["bytes_per_second"] = per(static_cast<double>(bytes), seconds);
  object["latency_ns"] = Json{{"mean", latency.mean()},           {"p50", latency.percentile(50)},
                              {"p90", latency.percentile(90)},    {"p99", latency.percentile(99)},
                              {"p999", latency.percentile(99.9)}, {"max", latency.max()}};
  object["errors"] = failures_json(tally.failures);
}

Json result_json(const BenchOptions& options, const BenchResult& result) {
  Json object{
      {"size_bytes", result.block_bytes}, {"depth", result.depth}, {"seconds", result.seconds}};
  add_tally(object, result.total, result.bytes(), result.seconds);
  object["cpu_ns_per_operation"] =
      per(result.cpu_seconds * 1e9, static_cast<double>(result.total.operations()));
  Json by_op = Json::object();
  for (const BenchMix::Share& share : options.mix.shares()) {
    Json& one = by_op[std::string{to_string(share.op)}];
    one["weight"] = share.weight;
    add_tally(one, result.by_op[static_cast<std::size_t>(share.op)], result.bytes(share.op),
              result.seconds);
  }
  object["by_op"] = std::move(by_op);
  return object;
}

/// The first cells are empty if a row belongs to the one above.
struct RowName {
  std::string size;
  std::string depth;
  std::string op;
};

void print_row(const RowName& name, const BenchTally& tally, std::uint64_t bytes, double seconds,
               const std::string& cpu) {
  const auto& latency = tally.latency_ns;
  const auto at = [&latency](double percent) {
    return human_nanoseconds(static_cast<double>(latency.percentile(percent)));
  };
  const auto operations = static_cast<double>(tally.operations());
  std::printf(
      "%9s %6s  %-5s %11s %11s %8s %8s %8s %8s %8s %8s %9s %7ju\n", name.size.c_str(),
      name.depth.c_str(), name.op.c_str(), human_operations(per(operations, seconds)).c_str(),
      human_rate(per(static_cast<double>(bytes), seconds)).c_str(),
      human_nanoseconds(latency.mean()).c_str(), at(50).c_str(), at(90).c_str(), at(99).c_str(),
      at(99.9).c_str(), human_nanoseconds(static_cast<double>(latency.max())).c_str(), cpu.c_str(),
      std::uintmax_t{tally.failed()});
}

}  // namespace

namespace {

/// Mapped memory has one path.
std::size_t lanes_of(const BenchOptions& options, const OpenedStore& store) {
  return store.mapped() ? 1 : options.lanes;
}

}  // namespace

Json bench_json(const BenchOptions& options, const OpenedStore& store,
                const std::vector<BenchResult>& results) {
  Json document{
      {"op", options.mix.text()},        {"transport", store.transport()},
      {"threads", options.threads},      {"lanes", lanes_of(options, store)},
      {"batch", options.batch},          {"pattern", options.sequential ? "sequential" : "random"},
      {"seed", *options.seed},           {"spin_ns", options.spin.count()},
      {"warmup_seconds", options.warmup}};
  Json all = Json::array();
  for (const BenchResult& result : results) all.push_back(result_json(options, result));
  if (options.single() && !all.empty()) document.update(all.front());
  document["results"] = std::move(all);
  return document;
}

void print_bench_head(const BenchOptions& options, const OpenedStore& store) {
  std::string batch = options.batch == 0 ? "" : ", batches of " + std::to_string(options.batch);
  const std::size_t lanes = lanes_of(options, store);
  if (lanes > 1) batch += ", " + std::to_string(lanes) + " lanes";
  std::printf("%s %s over %s, %zu thread%s%s, %g s%s, spin %s, seed %ju\n",
              options.sequential ? "sequential" : "random", options.mix.text().c_str(),
              store.transport().c_str(), options.threads, options.threads == 1 ? "" : "s",
              batch.c_str(), options.seconds, options.single() ? "" : " each",
              config::format_duration(options.spin).c_str(), std::uintmax_t{*options.seed});
  std::printf("%9s %6s  %-5s %11s %11s %8s %8s %8s %8s %8s %8s %9s %7s\n", "size", "depth", "op",
              "rate", "bytes", "mean", "p50", "p90", "p99", "p99.9", "max", "CPU/op", "errors");
  std::fflush(stdout);
}

void print_bench_rows(const BenchOptions& options, const BenchResult& result) {
  RowName name{config::format_size(result.block_bytes), std::to_string(result.depth), ""};
  const auto& shares = options.mix.shares();
  const std::string cpu = human_nanoseconds(
      per(result.cpu_seconds * 1e9, static_cast<double>(result.total.operations())));
  if (shares.size() > 1)
    for (const BenchMix::Share& share : shares) {
      name.op = to_string(share.op);
      print_row(name, result.by_op[static_cast<std::size_t>(share.op)], result.bytes(share.op),
                result.seconds, "");
      name = {};
    }
  name.op = shares.size() > 1 ? "all" : to_string(shares.front().op);
  print_row(name, result.total, result.bytes(), result.seconds, cpu);
  for (std::size_t i = 0; i < result.total.failures.size(); ++i)
    if (result.total.failures[i] > 0)
      std::printf("  errors: %s: %ju\n", std::string{to_string(static_cast<Code>(i))}.c_str(),
                  std::uintmax_t{result.total.failures[i]});
  std::fflush(stdout);
}

}  // namespace remora::apps
