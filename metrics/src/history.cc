#include "history.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <pthread.h>
#include <random>
#include <string_view>
#include <system_error>

namespace remora::metrics {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

// A histogram's: the first two since the process began, the others of the sample's interval.
constexpr std::array<std::string_view, 7> kHistogramColumns{"count", "sum",  "p50", "p90",
                                                            "p99",   "p999", "max"};
constexpr std::array<double, 4> kPercents{50, 90, 99, 99.9};

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::kCounter: return "counter";
    case Kind::kGauge: return "gauge";
    case Kind::kHistogram: return "histogram";
  }
  return "";
}

std::string_view name_of(Unit unit) {
  switch (unit) {
    case Unit::kSeconds: return "seconds";
    case Unit::kBytes: return "bytes";
    case Unit::kCount: return "count";
  }
  return "";
}

// What `now` counts and `before` did not. Cells only grow, so buckets do.
LatencyHistogram difference(const LatencyHistogram& now, const LatencyHistogram& before) {
  LatencyHistogram since;
  for (std::size_t rank = 0; rank < Buckets::kCount; ++rank)
    since.record_n(Buckets::upper_of_rank(rank),
                   now.count_at_rank(rank) - before.count_at_rank(rank));
  return since;
}

// Integers without a fraction, which halves the text; what is no number as null.
nlohmann::json number(double value) {
  constexpr double kExact = 9'007'199'254'740'992.0;  // 2^53
  if (!std::isfinite(value)) return nullptr;
  if (std::fabs(value) < kExact && value == std::trunc(value))
    return static_cast<std::int64_t>(value);
  return value;
}

std::string random_name() {
  std::random_device entropy;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string name;
  for (int i = 0; i < 16; ++i) name += kDigits[entropy() % kDigits.size()];
  return name;
}

}  // namespace

History::History(std::shared_ptr<Registry> registry, Options options)
    : registry_{std::move(registry)},
      options_{options},
      id_{random_name()},
      times_ms_(options_.samples_max) {}

History::~History() {
  {
    const std::lock_guard lock{stop_mutex_};
    stop_ = true;
  }
  stop_changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status History::start() {
  try {
    thread_ = std::thread{[this] { run(); }};
  } catch (const std::system_error& failure) {
    return Error{Code::kSystem, "std::thread"}.with_errno(failure.code().value());
  }
  ::pthread_setname_np(thread_.native_handle(), "remora-history");
  return ok_status();
}

void History::run() {
  // By the steady clock, so that a clock that is set makes neither a burst nor a gap.
  auto due = std::chrono::steady_clock::now();
  std::unique_lock lock{stop_mutex_};
  while (!stop_changed_.wait_until(lock, due, [this] { return stop_; })) {
    lock.unlock();
    try {
      sample(std::chrono::system_clock::now());
    } catch (...) {  // no memory: this sample is missing
    }
    due = std::max(due + options_.period, std::chrono::steady_clock::now());
    lock.lock();
  }
}

History::Track& History::track_of(const FamilySnapshot& family, const SeriesSnapshot& series) {
  auto& track = tracks_[Key{family.name, series.labels}];
  if (track != nullptr) return *track;
  auto made = std::make_unique<Track>();
  made->kind = family.kind;
  made->unit = family.shape.unit;
  made->columns.assign(family.kind == Kind::kHistogram ? kHistogramColumns.size() : 1,
                       Column(options_.samples_max, kNothing));
  track = std::move(made);
  return *track;
}

void History::record(Track& track, const SeriesSnapshot& series, std::size_t place) const {
  if (series.histogram == nullptr) {
    track.columns[0][place] = series.value;
    return;
  }
  const LatencyHistogram since = difference(*series.histogram, track.before);
  track.before = *series.histogram;
  track.columns[0][place] = static_cast<double>(series.histogram->count());
  track.columns[1][place] = in_base_units(track.unit, series.histogram->sum());
  const auto of_interval = [&](std::uint64_t value) {
    return since.count() == 0 ? kNothing : in_base_units(track.unit, value);
  };
  for (std::size_t i = 0; i < kPercents.size(); ++i)
    track.columns[2 + i][place] = of_interval(since.percentile(kPercents[i]));
  track.columns[2 + kPercents.size()][place] = of_interval(since.max());
}

void History::sample(std::chrono::system_clock::time_point now) {
  const std::vector<FamilySnapshot> families =
      take_snapshot(*registry_->state_, MarkReader::kHistory);
  const std::lock_guard lock{mutex_};
  const auto place = static_cast<std::size_t>(next_ % options_.samples_max);
  // What is not seen this time has no value; what has none left is forgotten.
  std::erase_if(tracks_, [&](const auto& entry) {
    for (Column& column : entry.second->columns) column[place] = kNothing;
    const Column& first = entry.second->columns.front();
    return std::all_of(first.begin(), first.end(), [](double value) { return std::isnan(value); });
  });
  for (const FamilySnapshot& family : families)
    for (const SeriesSnapshot& series : family.series)
      record(track_of(family, series), series, place);
  times_ms_[place] =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  ++next_;
}

std::string History::json(std::uint64_t since) const {
  const std::lock_guard lock{mutex_};
  const std::uint64_t oldest =
      next_ > options_.samples_max ? next_ - options_.samples_max : std::uint64_t{0};
  const std::uint64_t first = std::clamp(since, oldest, next_);
  const auto values_of = [&](const Column& column) {
    nlohmann::json values = nlohmann::json::array();
    for (std::uint64_t n = first; n < next_; ++n)
      values.push_back(number(column[static_cast<std::size_t>(n % options_.samples_max)]));
    return values;
  };
  nlohmann::json times = nlohmann::json::array();
  for (std::uint64_t n = first; n < next_; ++n)
    times.push_back(times_ms_[static_cast<std::size_t>(n % options_.samples_max)]);
  nlohmann::json all = nlohmann::json::array();
  for (const auto& [key, track] : tracks_) {
    nlohmann::json labels = nlohmann::json::object();
    for (const Label& label : key.second) labels[label.name] = label.value;
    nlohmann::json series{
        {"name", key.first}, {"kind", name_of(track->kind)}, {"labels", std::move(labels)}};
    if (track->kind == Kind::kHistogram) {
      series["unit"] = name_of(track->unit);
      for (std::size_t i = 0; i < kHistogramColumns.size(); ++i)
        series[std::string{kHistogramColumns[i]}] = values_of(track->columns[i]);
    } else {
      series["values"] = values_of(track->columns[0]);
    }
    all.push_back(std::move(series));
  }
  return nlohmann::json{{"process", id_},
                        {"period_ms", options_.period.count()},
                        {"kept", options_.samples_max},
                        {"first", first},
                        {"next", next_},
                        {"times_ms", std::move(times)},
                        {"series", std::move(all)}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace remora::metrics
