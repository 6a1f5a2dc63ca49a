#include "history.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>

#include <remora/assert.h>
#include <remora/start_thread.h>

namespace remora::metrics {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

// The columns of a histogram: the first two are since the process began, the others for the
// sample's interval.
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

// The values that `now` counts and `before` did not. Cells only grow, except those that threads
// without memory share, which may lose counts.
LatencyHistogram difference(const LatencyHistogram& now, const LatencyHistogram& before) {
  LatencyHistogram since;
  for (std::size_t rank = 0; rank < Buckets::kCount; ++rank) {
    const std::uint64_t counted = now.count_at_rank(rank);
    const std::uint64_t known = before.count_at_rank(rank);
    if (counted > known) since.record_n(Buckets::upper_of_rank(rank), counted - known);
  }
  return since;
}

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string object_of(const Labels& labels) {
  std::string out = "{";
  for (const Label& label : labels)
    out += (out.size() > 1 ? "," : "") + json_text(label.name) + ":" + json_text(label.value);
  return out + "}";
}

// The shortest text that reads back as the same number; null for a value that is no number.
void append_number(std::string& to, double value) {
  if (!std::isfinite(value)) {
    to += "null";
    return;
  }
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  to.append(text.data(), end);
}

template <typename Value, typename Append>
void append_list(std::string& to, const std::vector<Value>& values, Append append) {
  to += '[';
  for (const Value& value : values) {
    if (to.back() != '[') to += ',';
    append(to, value);
  }
  to += ']';
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
    const detail::MutexLock lock{stop_mutex_};
    stop_ = true;
  }
  stop_changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status History::start() {
  auto thread = detail::start_thread("remora-history", [this] { run(); });
  if (!thread) return thread.error();
  thread_ = std::move(*thread);
  return ok_status();
}

void History::run() {
  // By the steady clock, so that setting the clock causes neither many samples nor a gap.
  auto due = std::chrono::steady_clock::now();
  detail::MutexLock lock{stop_mutex_};
  while (!stop_changed_.wait_until(lock, due, [this] {
    stop_mutex_.assert_held();
    return stop_;
  })) {
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
  Key key{family.name, series.labels};
  if (const auto known = tracks_.find(key); known != tracks_.end()) {
    if (known->second->kind == family.kind) return *known->second;
    tracks_.erase(known);  // of a family that has gone; its name has been given to another kind
  }
  auto made = std::make_unique<Track>();
  made->kind = family.kind;
  made->unit = family.shape.unit;
  made->columns.assign(family.kind == Kind::kHistogram ? kHistogramColumns.size() : 1,
                       Column(options_.samples_max, kNothing));
  return *tracks_.emplace(std::move(key), std::move(made)).first->second;
}

void History::record(Track& track, const SeriesSnapshot& series, std::size_t place) const {
  REMORA_ASSERT((track.kind == Kind::kHistogram) == (series.histogram != nullptr),
                "a series is recorded in a track of its kind");
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
  const detail::MutexLock lock{mutex_};
  const auto place = static_cast<std::size_t>(next_ % options_.samples_max);
  // A series that is missing now has no value in this sample; a series without any value is
  // removed.
  std::erase_if(tracks_, [place](const auto& entry) {
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

// The data of an answer, copied so that writing the answer does not delay samples.
struct History::Excerpt {
  struct Line {
    Key key;
    Kind kind;
    Unit unit;
    std::vector<Column> columns;
  };
  std::uint64_t first = 0;
  std::uint64_t next = 0;
  std::vector<std::int64_t> times_ms;
  std::vector<Line> lines;
};

History::Excerpt History::excerpt(std::uint64_t since) const {
  const detail::MutexLock lock{mutex_};
  const std::uint64_t oldest =
      next_ > options_.samples_max ? next_ - options_.samples_max : std::uint64_t{0};
  Excerpt out;
  out.first = std::clamp(since, oldest, next_);
  out.next = next_;
  const auto slice = [&out, this](const auto& ring, auto& values) {
    values.reserve(static_cast<std::size_t>(out.next - out.first));
    for (std::uint64_t n = out.first; n < out.next; ++n)
      values.push_back(ring[static_cast<std::size_t>(n % options_.samples_max)]);
  };
  slice(times_ms_, out.times_ms);
  out.lines.reserve(tracks_.size());
  for (const auto& [key, track] : tracks_) {
    auto& line = out.lines.emplace_back(Excerpt::Line{key, track->kind, track->unit, {}});
    line.columns.resize(track->columns.size());
    for (std::size_t i = 0; i < line.columns.size(); ++i) slice(track->columns[i], line.columns[i]);
  }
  return out;
}

std::string History::json(std::uint64_t since) const {
  // A whole history has some megabytes: one answer at a time.
  const detail::MutexLock writing{writing_};
  const Excerpt from = excerpt(since);
  std::string out = "{\"process\":" + json_text(id_) +
                    ",\"period_ms\":" + std::to_string(options_.period.count()) +
                    ",\"kept\":" + std::to_string(options_.samples_max) +
                    ",\"first\":" + std::to_string(from.first) +
                    ",\"next\":" + std::to_string(from.next) + ",\"times_ms\":";
  append_list(out, from.times_ms,
              [](std::string& to, std::int64_t time) { to += std::to_string(time); });
  out += ",\"series\":[";
  for (const Excerpt::Line& line : from.lines) {
    const bool histogram = line.kind == Kind::kHistogram;
    if (out.back() != '[') out += ',';
    out += "{\"name\":" + json_text(line.key.first) + ",\"kind\":" + json_text(name_of(line.kind)) +
           ",\"labels\":" + object_of(line.key.second);
    if (histogram) out += ",\"unit\":" + json_text(name_of(line.unit));
    for (std::size_t i = 0; i < line.columns.size(); ++i) {
      out += "," + json_text(histogram ? kHistogramColumns[i] : "values") + ":";
      append_list(out, line.columns[i], append_number);
    }
    out += '}';
  }
  return out + "]}";
}

}  // namespace remora::metrics
