#pragma once

/// The report of `remora bench`: a table for people, one object for scripts. apps/docs/bench.md
/// lists the keys of the object, which keep their meaning.

#include <string>
#include <vector>

#include "cli/bench_options.h"
#include "cli/bench_run.h"
#include "cli/opened_store.h"

namespace remora::apps {

/// Conditions and results; with one size and one depth, the result is also at the top level.
[[nodiscard]] Json bench_json(const BenchOptions& options, const OpenedStore& store,
                              const std::vector<BenchResult>& results);

/// The conditions in one line, and the head of the table.
void print_bench_head(const BenchOptions& options, const OpenedStore& store);
/// One row; with a mix, one for each operation and one for all. Then errors by code.
void print_bench_rows(const BenchOptions& options, const BenchResult& result);

}  // namespace remora::apps
