#pragma once

#include <array>
#include <cstdint>

#include <remora/metrics/latency_histogram.h>
#include <remora/result.h>

#include "cli/bench_mix.h"

namespace remora::apps {

/// Operations that failed, by code.
using FailureCounts = std::array<std::uint64_t, static_cast<std::size_t>(Code::kInternal) + 1>;

/// Results of the operations of one kind.
struct BenchTally {
  /// Latencies of the operations that succeeded between measure_from and measure_to.
  metrics::LatencyHistogram latency_ns;
  /// All failures, at any time.
  FailureCounts failures{};

  void merge(const BenchTally& other) noexcept;
  [[nodiscard]] std::uint64_t operations() const noexcept { return latency_ns.count(); }
  [[nodiscard]] std::uint64_t failed() const noexcept;
};
/// By BenchOp.
using BenchTallies = std::array<BenchTally, kBenchOpCount>;

}  // namespace remora::apps
