#include "cli/top_series.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace remora::apps {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double number(const Json& value) { return value.is_number() ? value.get<double>() : kNan; }

bool is_array_of(const Json& object, const char* name, std::size_t length) {
  const auto found = object.find(name);
  return found != object.end() && found->is_array() && found->size() == length;
}

bool is_series(const Json& series, std::size_t length) {
  if (!series.is_object() || !series.contains("name") || !series["name"].is_string()) return false;
  if (!series.contains("labels") || !series["labels"].is_object()) return false;
  return is_array_of(series, "values", length) ||
         (is_array_of(series, "count", length) && is_array_of(series, "sum", length));
}

/// NaN only if both are.
double plus(double a, double b) { return std::isnan(a) ? b : std::isnan(b) ? a : a + b; }

}  // namespace

bool TopSeries::take(const Json& answer) {
  if (!answer.is_object() || !answer.contains("process") || !answer["process"].is_string() ||
      !answer.contains("next") || !answer["next"].is_number_unsigned() ||
      !answer.contains("times_ms") || !answer["times_ms"].is_array() ||
      !answer.contains("series") || !answer["series"].is_array())
    return false;
  const Json& times = answer["times_ms"];
  for (const Json& series : answer["series"])
    if (!is_series(series, times.size())) return false;
  if (answer["process"] != process_) {
    *this = {};
    process_ = answer["process"].get<std::string>();
  }
  next_ = answer["next"].get<std::uint64_t>();
  const std::size_t before = times_ms_.size();
  for (const Json& time : times) times_ms_.push_back(number(time));
  for (Series& series : series_)
    for (auto& [name, column] : series.columns) column.resize(times_ms_.size(), kNan);
  for (const Json& described : answer["series"]) {
    Series& series = series_of(described);
    for (const auto& [name, values] : described.items()) {
      if (!values.is_array() || values.size() != times.size()) continue;
      std::deque<double>& column = series.columns[name];
      column.resize(times_ms_.size(), kNan);
      for (std::size_t i = 0; i < values.size(); ++i) column[before + i] = number(values[i]);
    }
  }
  forget_oldest();
  return true;
}

TopSeries::Series& TopSeries::series_of(const Json& described) {
  Series wanted{described["name"].get<std::string>(), {}, {}};
  for (const auto& [label, value] : described["labels"].items())
    wanted.labels[label] = value.is_string() ? value.get<std::string>() : value.dump();
  const auto known = std::find_if(series_.begin(), series_.end(), [&](const Series& series) {
    return series.name == wanted.name && series.labels == wanted.labels;
  });
  if (known != series_.end()) return *known;
  return series_.emplace_back(std::move(wanted));
}

void TopSeries::forget_oldest() {
  if (times_ms_.size() <= kSamplesMax) return;
  const auto excess = static_cast<std::ptrdiff_t>(times_ms_.size() - kSamplesMax);
  times_ms_.erase(times_ms_.begin(), times_ms_.begin() + excess);
  for (Series& series : series_)
    for (auto& [name, column] : series.columns)
      column.erase(column.begin(), column.begin() + excess);
}

bool TopSeries::matches(const Series& series, std::string_view name, const LabelFilter& labels) {
  return series.name == name && std::all_of(labels.begin(), labels.end(), [&](const auto& wanted) {
           const auto found = series.labels.find(wanted.first);
           return found != series.labels.end() && found->second == wanted.second;
         });
}

bool TopSeries::has(std::string_view name, const LabelFilter& labels) const {
  return std::any_of(series_.begin(), series_.end(),
                     [&](const Series& series) { return matches(series, name, labels); });
}

std::vector<std::string> TopSeries::values_of(std::string_view name,
                                              const std::string& label) const {
  std::set<std::string> found;
  for (const Series& series : series_)
    if (const auto at = series.labels.find(label); series.name == name && at != series.labels.end())
      found.insert(at->second);
  return {found.begin(), found.end()};
}

double TopSeries::last(std::string_view name, const LabelFilter& labels,
                       const std::string& column) const {
  double sum = kNan;
  for (const Series& series : series_) {
    const auto found = series.columns.find(column);
    if (matches(series, name, labels) && found != series.columns.end() && !found->second.empty())
      sum = plus(sum, found->second.back());
  }
  return sum;
}

double TopSeries::latest_max(std::string_view name, const LabelFilter& labels,
                             const std::string& column) const {
  double max = kNan;
  for (const Series& series : series_) {
    const auto found = series.columns.find(column);
    if (matches(series, name, labels) && found != series.columns.end() && !found->second.empty())
      max = std::fmax(max, found->second.back());
  }
  return max;
}

double TopSeries::rate(std::string_view name, const LabelFilter& labels, const std::string& column,
                       std::size_t ago) const {
  if (times_ms_.size() < ago + 2) return kNan;
  const std::size_t now = times_ms_.size() - 1 - ago;
  const double seconds = (times_ms_[now] - times_ms_[now - 1]) / 1e3;
  if (!(seconds > 0)) return kNan;
  double sum = kNan;
  for (const Series& series : series_) {
    const auto found = series.columns.find(column);
    if (!matches(series, name, labels) || found == series.columns.end()) continue;
    const double before = found->second[now - 1];
    sum = plus(sum, found->second[now] - (std::isnan(before) ? 0 : before));
  }
  return sum / seconds;
}

}  // namespace remora::apps
