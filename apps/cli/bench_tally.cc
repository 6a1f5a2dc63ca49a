#include "cli/bench_tally.h"

#include <cstddef>

namespace remora::apps {

void BenchTally::merge(const BenchTally& other) noexcept {
  latency_ns.merge(other.latency_ns);
  for (std::size_t i = 0; i < failures.size(); ++i) failures[i] += other.failures[i];
}

std::uint64_t BenchTally::failed() const noexcept {
  std::uint64_t sum = 0;
  for (const std::uint64_t count : failures) sum += count;
  return sum;
}

}  // namespace remora::apps
