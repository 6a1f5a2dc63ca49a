// Records in a loop, to be counted by callgrind: metrics_cost add|observe|observe_n|recorder|none
// N.

#include <cstdlib>
#include <iostream>
#include <string_view>

#include <remora/metrics/registry.h>

#include "support/counted.h"

namespace {

using remora::metrics::Counter;
using remora::metrics::Histogram;
using remora::metrics::HistogramShape;
using remora::metrics::Recorder;
using remora::metrics::Registry;

template <typename F>
[[gnu::noinline]] void repeat(std::uint64_t times, F record) {
  const remora::test::Counted counted;
  for (std::uint64_t i = 0; i < times; ++i) {
    asm volatile("" : "+r"(i));  // a value the compiler knows nothing of, at no instruction
    record(i);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return EXIT_FAILURE;
  const std::string_view what{argv[1]};
  const std::uint64_t times = std::strtoull(argv[2], nullptr, 10);
  const auto registry = Registry::create().value();
  const Counter counter = registry->counter("cost_total", "Count.").value();
  const Histogram histogram =
      registry->histogram("cost_seconds", "Latency.", {}, HistogramShape::latency()).value();
  const Recorder recorder = registry->recorder();
  if (what == "none") repeat(times, [](std::uint64_t) {});
  if (what == "add") repeat(times, [=](std::uint64_t) { recorder.add(counter); });
  if (what == "observe") repeat(times, [=](std::uint64_t i) { recorder.observe(histogram, i); });
  if (what == "observe_n")
    repeat(times, [=](std::uint64_t i) { recorder.observe_n(histogram, i, 3); });
  if (what == "recorder") repeat(times, [&](std::uint64_t) { (void)registry->recorder(); });
  std::cout << registry->value(counter) + registry->value(histogram).count() << '\n';
  return EXIT_SUCCESS;
}
