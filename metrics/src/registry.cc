#include <algorithm>
#include <utility>

#include <remora/assert.h>
#include <remora/metrics/registry.h>

#include "registry_state.h"

namespace remora::metrics {
namespace {

using Family = RegistryState::Family;
using Series = RegistryState::Series;
using Source = RegistryState::Source;

constexpr std::size_t kSeriesMaxLimit = 100'000;

Status check(std::string_view name, std::string_view help, Kind kind) {
  if (const Status status = check_name(name, kind); !status) return status;
  return check_help(help);
}

bool carries(const Labels& all, const Labels& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const Label& label) {
    return std::find(all.begin(), all.end(), label) != all.end();
  });
}

Error not_found(std::string_view name) {
  return Error{Code::kNotFound, "metric"}.with_subject(name);
}

}  // namespace

HistogramShape HistogramShape::latency() {
  constexpr std::uint64_t kMicrosecond = 1'000;
  constexpr std::uint64_t kMillisecond = 1'000'000;
  constexpr std::uint64_t kSecond = 1'000'000'000;
  HistogramShape shape{Unit::kSeconds, {}};
  for (const unsigned steps : {1U, 2U, 5U, 10U, 20U, 50U, 100U, 200U, 500U})
    shape.bounds.push_back(steps * kMicrosecond);
  for (const unsigned steps : {1U, 2U, 5U, 10U, 20U, 50U, 100U, 500U})
    shape.bounds.push_back(steps * kMillisecond);
  for (const unsigned steps : {1U, 5U, 10U, 60U}) shape.bounds.push_back(steps * kSecond);
  return shape;
}

HistogramShape HistogramShape::bytes() {
  HistogramShape shape{Unit::kBytes, {}};
  for (std::uint64_t bound = 64; bound <= std::uint64_t{64} << 20; bound *= 4)
    shape.bounds.push_back(bound);
  return shape;
}

HistogramShape HistogramShape::counts(std::uint64_t largest) {
  HistogramShape shape{Unit::kCount, {1}};
  while (shape.bounds.back() <= largest / 2) shape.bounds.push_back(shape.bounds.back() * 2);
  return shape;
}

CallbackHandle& CallbackHandle::operator=(CallbackHandle&& other) noexcept {
  if (this == &other) return *this;
  reset();
  state_ = std::move(other.state_);
  entry_ = std::move(other.entry_);
  return *this;
}

void CallbackHandle::reset() noexcept {
  const auto owned = std::move(entry_);
  if (owned == nullptr) return;
  const std::shared_ptr<RegistryCallback>& entry = owned.pointer();
  if (const auto state = state_.lock()) {
    const detail::MutexLock lock{state->mutex};
    const auto family = state->families.find(entry->family);
    if (family != state->families.end()) {
      const std::size_t erased = family->second.series.erase(entry->labels);
      REMORA_ASSERT(erased <= state->series_used, "a series is reserved before it is added");
      state->series_used -= erased;
    }
  }
  // Last, and without the registry's lock: waits for a scrape that is calling it.
  const detail::MutexLock running{entry->running};
  entry->call = nullptr;
}

Registry::Registry(std::shared_ptr<RegistryState> state) noexcept : state_{std::move(state)} {}
Registry::~Registry() = default;

Result<std::shared_ptr<Registry>> Registry::create(RegistryOptions options) {
  if (options.series_max == 0 || options.series_max > kSeriesMaxLimit)
    return Error{Code::kInvalidArgument, "series_max of a metrics registry"}.with_limit(
        options.series_max, kSeriesMaxLimit);
  auto state = std::make_shared<RegistryState>(options);
  const detail::MutexLock lock{state->mutex};
  if (state->blocks.front().cells() == nullptr)
    return Error{Code::kOutOfMemory, "mmap of a metrics registry"};
  return std::shared_ptr<Registry>{new Registry{std::move(state)}};
}

Result<Counter> Registry::counter(std::string_view name, std::string_view help,
                                  const Labels& labels) {
  if (const Status status = check(name, help, Kind::kCounter); !status) return status.error();
  const Result<Labels> key = normalise(labels);
  if (!key) return key.error();
  const detail::MutexLock lock{state_->mutex};
  const Result<Family*> family = state_->family(name, help, Kind::kCounter, {}, false);
  if (!family) return family.error();
  if (const auto known = (*family)->series.find(*key); known != (*family)->series.end()) {
    if (known->second.source == Source::kCell) return Counter{known->second.cell};
    return Error{Code::kAlreadyExists, "series of a callback"}.with_subject(name);
  }
  if (const Status status = state_->reserve_series(name, 1); !status) return status.error();
  Series series;
  series.cell = state_->counters_end++;
  REMORA_ASSERT(state_->counters_end <= RegistryState::kScratchCells + state_->series_max,
                "the cells of counters end where those of histograms begin");
  (*family)->series.emplace(*key, series);
  return Counter{series.cell};
}

Result<Gauge> Registry::gauge(std::string_view name, std::string_view help, const Labels& labels,
                              HighWater high_water) {
  const bool marked = high_water == HighWater::kExport;
  if (const Status status = check(name, help, Kind::kGauge); !status) return status.error();
  const Result<Labels> key = normalise(labels);
  if (!key) return key.error();
  const detail::MutexLock lock{state_->mutex};
  const Result<Family*> family = state_->family(name, help, Kind::kGauge, {}, false);
  if (!family) return family.error();
  if (const auto known = (*family)->series.find(*key); known != (*family)->series.end()) {
    if (known->second.source == Source::kGauge && known->second.gauge->has_high_water == marked)
      return Gauge{known->second.gauge};
    return Error{Code::kAlreadyExists, "series of another kind of gauge"}.with_subject(name);
  }
  Family* marks = nullptr;
  if (marked) {
    const std::string mark_name = std::string{name} + "_high_water";
    const std::string mark_help = "Highest value since the last scrape: " + std::string{help};
    const Result<Family*> made = state_->family(mark_name, mark_help, Kind::kGauge, {}, true);
    if (!made) return made.error();
    marks = *made;
  }
  if (const Status status = state_->reserve_series(name, marked ? 2 : 1); !status)
    return status.error();
  Series series;
  series.gauge = &state_->gauges.emplace_back();
  series.gauge->has_high_water = marked;
  series.source = Source::kGauge;
  (*family)->series.emplace(*key, series);
  series.source = Source::kHighWater;
  if (marks != nullptr) marks->series.emplace(*key, series);
  return Gauge{series.gauge};
}

Result<Histogram> Registry::histogram(std::string_view name, std::string_view help,
                                      const Labels& labels, const HistogramShape& shape) {
  if (const Status status = check(name, help, Kind::kHistogram); !status) return status.error();
  if (const Status status = check_shape(name, shape); !status) return status.error();
  const Result<Labels> key = normalise(labels);
  if (!key) return key.error();
  const detail::MutexLock lock{state_->mutex};
  const Result<Family*> family = state_->family(name, help, Kind::kHistogram, shape, false);
  if (!family) return family.error();
  if (const auto known = (*family)->series.find(*key); known != (*family)->series.end())
    return Histogram{known->second.cell};
  // +Inf, _sum and _count are series, too.
  if (const Status status = state_->reserve_series(name, shape.bounds.size() + 3); !status)
    return status.error();
  Series series;
  series.cell = std::exchange(state_->histograms_end,
                              state_->histograms_end + RegistryState::kHistogramCells);
  REMORA_ASSERT(state_->histograms_end <= state_->cells_per_block,
                "a block has cells for all histograms that the budget has room for");
  (*family)->series.emplace(*key, series);
  return Histogram{series.cell};
}

Result<CallbackHandle> Registry::callback(bool grows, std::string_view name, std::string_view help,
                                          const Labels& labels, std::function<double()> value) {
  const Kind kind = grows ? Kind::kCounter : Kind::kGauge;
  if (const Status status = check(name, help, kind); !status) return status.error();
  if (!value) return Error{Code::kInvalidArgument, "callback must not be empty"}.with_subject(name);
  const Result<Labels> key = normalise(labels);
  if (!key) return key.error();
  const detail::MutexLock lock{state_->mutex};
  const Result<Family*> family = state_->family(name, help, kind, {}, false);
  if (!family) return family.error();
  if ((*family)->series.contains(*key))
    return Error{Code::kAlreadyExists, "series of a callback"}.with_subject(name);
  if (const Status status = state_->reserve_series(name, 1); !status) return status.error();
  Series series;
  series.source = Source::kCallback;
  series.entry = std::make_shared<RegistryCallback>(std::move(value), std::string{name}, *key);
  (*family)->series.emplace(*key, series);
  return CallbackHandle{state_, series.entry};
}

Result<CallbackHandle> Registry::gauge_callback(std::string_view name, std::string_view help,
                                                const Labels& labels,
                                                std::function<double()> value) {
  return callback(false, name, help, labels, std::move(value));
}

Result<CallbackHandle> Registry::counter_callback(std::string_view name, std::string_view help,
                                                  const Labels& labels,
                                                  std::function<double()> value) {
  return callback(true, name, help, labels, std::move(value));
}

std::uint64_t Registry::value(Counter counter) const {
  if (counter.cell_ == 0) return 0;
  const detail::MutexLock lock{state_->mutex};
  return state_->sum_cell(counter.cell_);
}

std::int64_t Registry::value(Gauge gauge) const noexcept {
  return gauge.cell_ == nullptr ? 0 : gauge.cell_->value.load(std::memory_order_relaxed);
}

std::int64_t Registry::high_water(Gauge gauge) const noexcept {
  if (gauge.cell_ == nullptr || !gauge.cell_->has_high_water) return value(gauge);
  return RegistryState::mark(*gauge.cell_, MarkReader::kScrape);
}

LatencyHistogram Registry::value(Histogram histogram) const {
  if (histogram.cell_ == 0) return {};
  const detail::MutexLock lock{state_->mutex};
  return state_->read_histogram(histogram.cell_);
}

Result<double> Registry::value(std::string_view name, const Labels& labels) const {
  const Result<Labels> key = normalise(labels);
  if (!key) return key.error();
  std::shared_ptr<RegistryCallback> entry;
  {
    const detail::MutexLock lock{state_->mutex};
    const Family* const family = state_->find(name);
    if (family == nullptr || family->kind == Kind::kHistogram) return not_found(name);
    const auto found = family->series.find(*key);
    if (found == family->series.end()) return not_found(name);
    if (found->second.source != Source::kCallback) return state_->read_plain(found->second);
    entry = found->second.entry;
  }
  double value = 0;
  if (!call(*entry, value)) return not_found(name);
  return value;
}

Result<double> Registry::sum(std::string_view name, const Labels& labels) const {
  std::vector<std::shared_ptr<RegistryCallback>> entries;
  double sum = 0;
  {
    const detail::MutexLock lock{state_->mutex};
    const Family* const family = state_->find(name);
    if (family == nullptr || family->kind == Kind::kHistogram) return not_found(name);
    for (const auto& [key, series] : family->series) {
      if (!carries(key, labels)) continue;
      if (series.source == Source::kCallback)
        entries.push_back(series.entry);
      else
        sum += state_->read_plain(series);
    }
  }
  for (const auto& entry : entries)
    if (double value = 0; call(*entry, value)) sum += value;
  return sum;
}

Result<LatencyHistogram> Registry::distribution(std::string_view name, const Labels& labels) const {
  const detail::MutexLock lock{state_->mutex};
  const Family* const family = state_->find(name);
  if (family == nullptr || family->kind != Kind::kHistogram) return not_found(name);
  LatencyHistogram merged;
  for (const auto& [key, series] : family->series)
    if (carries(key, labels)) merged.merge(state_->read_histogram(series.cell));
  return merged;
}

std::size_t Registry::series_count() const {
  const detail::MutexLock lock{state_->mutex};
  return state_->series_used;
}

std::size_t Registry::block_count() const {
  const detail::MutexLock lock{state_->mutex};
  return state_->blocks.size() - 1;
}

}  // namespace remora::metrics
