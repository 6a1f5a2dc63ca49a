#include "registry_state.h"

#include <algorithm>
#include <limits>

#include "histogram_reader.h"

namespace remora::metrics {
namespace {

std::uint64_t next_registry_id() noexcept {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

RegistryState::RegistryState(RegistryOptions options)
    : id{next_registry_id()},
      series_max{options.series_max},
      counters_end{kScratchCells},
      histograms_end{kScratchCells + static_cast<std::uint32_t>(options.series_max)},
      // A histogram has at least four series.
      cells_per_block{kScratchCells + options.series_max +
                      (options.series_max / 4) * kHistogramCells} {
  blocks.emplace_back(cells_per_block);
}

Result<RegistryState::Family*> RegistryState::family(std::string_view name, std::string_view help,
                                                     Kind kind, const HistogramShape& shape,
                                                     bool is_high_water) {
  const auto found = families.find(name);
  // An empty family is left over: its callbacks have gone, or the budget had no room for its
  // series.
  if (found == families.end() || found->second.series.empty()) {
    Family made;
    made.help = help;
    made.kind = kind;
    made.is_high_water = is_high_water;
    made.shape = shape;
    return &families.insert_or_assign(std::string{name}, std::move(made)).first->second;
  }
  Family& known = found->second;
  if (known.kind != kind || known.is_high_water != is_high_water ||
      known.shape.unit != shape.unit || known.shape.bounds != shape.bounds)
    return Error{Code::kAlreadyExists, "metric of another kind or shape"}.with_subject(name);
  return &known;
}

Status RegistryState::reserve_series(std::string_view name, std::size_t count) {
  if (series_used + count > series_max)
    return Error{Code::kLimitExceeded, "series of a metrics registry"}
        .with_subject(name)
        .with_limit(series_used + count, series_max);
  series_used += count;
  return ok_status();
}

const RegistryState::Family* RegistryState::find(std::string_view name) const {
  const auto found = families.find(name);
  return found == families.end() || found->second.series.empty() ? nullptr : &found->second;
}

std::uint64_t RegistryState::sum_cell(std::size_t cell) const {
  std::uint64_t sum = 0;
  for (const Block& block : blocks) sum += block.load(cell);
  return sum;
}

LatencyHistogram RegistryState::read_histogram(std::uint32_t cell) const {
  return HistogramReader::read(blocks, cell);
}

double RegistryState::read_plain(const Series& series) const {
  switch (series.source) {
    case Source::kCell: return static_cast<double>(sum_cell(series.cell));
    case Source::kGauge:
      return static_cast<double>(series.gauge->value.load(std::memory_order_relaxed));
    case Source::kHighWater: return static_cast<double>(mark(*series.gauge, MarkReader::kScrape));
    case Source::kCallback: break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

std::int64_t RegistryState::take_mark(Gauge::Cell& cell, MarkReader reader) noexcept {
  const std::int64_t now = cell.value.load(std::memory_order_relaxed);
  const std::int64_t taken =
      std::max(now, cell.high_water.exchange(now, std::memory_order_relaxed));
  for (auto& unseen : cell.unseen) Gauge::lift(unseen, taken);
  auto& unseen = cell.unseen[static_cast<std::size_t>(reader)];
  return unseen.exchange(now, std::memory_order_relaxed);
}

std::int64_t RegistryState::mark(const Gauge::Cell& cell, MarkReader reader) noexcept {
  return std::max({cell.value.load(std::memory_order_relaxed),
                   cell.high_water.load(std::memory_order_relaxed),
                   cell.unseen[static_cast<std::size_t>(reader)].load(std::memory_order_relaxed)});
}

bool call(RegistryCallback& entry, double& value) noexcept {
  const detail::MutexLock lock{entry.running};
  if (!entry.call) return false;
  try {
    value = entry.call();
  } catch (...) {
    value = std::numeric_limits<double>::quiet_NaN();
  }
  return true;
}

}  // namespace remora::metrics
