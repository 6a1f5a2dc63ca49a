// A scrape: the registry's series as prometheus-cpp's families, and those as text.

#include <algorithm>
#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sstream>

#include "registry_state.h"

namespace remora::metrics {
namespace {

using Source = RegistryState::Source;

// A callback series whose value is still to be asked for, and its place in the families.
struct Pending {
  std::shared_ptr<RegistryCallback> entry;
  std::size_t family;
  std::size_t metric;
};

prometheus::MetricType type_of(Kind kind) {
  switch (kind) {
    case Kind::kCounter: return prometheus::MetricType::Counter;
    case Kind::kGauge: return prometheus::MetricType::Gauge;
    case Kind::kHistogram: return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

// Division, not multiplication by 1e-9: 1,000 must become the double that prints as 1e-06.
double in_base_units(Unit unit, std::uint64_t recorded) {
  const auto value = static_cast<double>(recorded);
  return unit == Unit::kSeconds ? value / 1e9 : value;
}

prometheus::ClientMetric::Histogram export_histogram(const LatencyHistogram& histogram,
                                                     const HistogramShape& shape) {
  prometheus::ClientMetric::Histogram out;
  out.sample_count = histogram.count();
  out.sample_sum = in_base_units(shape.unit, histogram.sum());
  for (const std::uint64_t bound : shape.bounds)
    out.bucket.push_back({histogram.count_up_to(bound), in_base_units(shape.unit, bound)});
  return out;  // the serializer adds +Inf
}

// prometheus-cpp escapes label values, but not help.
std::string escape_help(const std::string& help) {
  std::string escaped;
  for (const char c : help) {
    if (c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

class Scrape final : public prometheus::Collectable {
 public:
  explicit Scrape(RegistryState& state) : state_{state} {}

  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families;
    std::vector<Pending> pending;
    read(families, pending);
    // Backwards, so that erasing the series of a callback that has just gone moves no other place.
    for (auto it = pending.rbegin(); it != pending.rend(); ++it) {
      auto& metrics = families[it->family].metric;
      auto& metric = metrics[it->metric];
      double value = 0;
      if (call(*it->entry, value))
        metric.gauge.value = metric.counter.value = value;
      else
        metrics.erase(metrics.begin() + static_cast<std::ptrdiff_t>(it->metric));
    }
    std::erase_if(families, [](const auto& family) { return family.metric.empty(); });
    return families;
  }

 private:
  void read(std::vector<prometheus::MetricFamily>& families, std::vector<Pending>& pending) const {
    const std::lock_guard lock{state_.mutex};
    for (const auto& [name, family] : state_.families) {
      prometheus::MetricFamily out;
      out.name = name;
      out.help = escape_help(family.help);
      out.type = type_of(family.kind);
      for (const auto& [labels, series] : family.series) {
        prometheus::ClientMetric& metric = out.metric.emplace_back();
        for (const Label& label : labels) metric.label.push_back({label.name, label.value});
        if (series.source == Source::kCallback)
          pending.push_back({series.entry, families.size(), out.metric.size() - 1});
        else if (family.kind == Kind::kHistogram)
          metric.histogram = export_histogram(state_.read_histogram(series.cell), family.shape);
        else
          metric.gauge.value = metric.counter.value = read_once(series);
      }
      families.push_back(std::move(out));
    }
  }

  // Begins a new interval where the series is a high-water mark.
  [[nodiscard]] double read_once(const RegistryState::Series& series) const {
    if (series.source != Source::kHighWater) return state_.read_plain(series);
    const std::int64_t now = series.gauge->value.load(std::memory_order_relaxed);
    const std::int64_t mark = series.gauge->high_water.exchange(now, std::memory_order_relaxed);
    return static_cast<double>(std::max(now, mark));
  }

  RegistryState& state_;
};

}  // namespace

std::string Registry::text() const {
  std::ostringstream out;
  prometheus::TextSerializer{}.Serialize(out, Scrape{*state_}.Collect());
  return std::move(out).str();
}

}  // namespace remora::metrics
