#pragma once

/// Runs the workers of one size at one depth, and measures time and processor time.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cli/bench_live.h"
#include "cli/bench_tally.h"
#include "cli/bench_worker.h"

namespace remora::apps {

/// The result of one size at one depth.
struct BenchResult {
  std::uint64_t block_bytes = 0;
  std::size_t depth = 0;
  BenchTallies by_op;
  BenchTally total;
  std::optional<Error> failure;  ///< the first
  double seconds = 0;            ///< the measured time
  double cpu_seconds = 0;        ///< of the whole process, user and system, in these seconds

  [[nodiscard]] std::uint64_t bytes(BenchOp op) const noexcept;
  [[nodiscard]] std::uint64_t bytes() const noexcept;
};

/// Runs `plan` with `threads` workers; blocks for warm-up and measuring, or until a signal, or
/// until every worker has stopped. Errors: those of BenchWorker::make.
Result<BenchResult> run_bench(const OpenedStore& store, BenchPlan plan, std::size_t threads,
                              double warmup_seconds, double seconds, BenchLive& live);

}  // namespace remora::apps
