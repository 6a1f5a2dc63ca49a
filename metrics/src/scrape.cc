// A scrape: the registry's series as prometheus-cpp's families, and those as text.

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sstream>
#include <utility>

#include "snapshot.h"

namespace remora::metrics {
namespace {

prometheus::MetricType type_of(Kind kind) {
  switch (kind) {
    case Kind::kCounter: return prometheus::MetricType::Counter;
    case Kind::kGauge: return prometheus::MetricType::Gauge;
    case Kind::kHistogram: return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
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
    for (const FamilySnapshot& family : take_snapshot(state_, MarkReader::kScrape)) {
      prometheus::MetricFamily& out = families.emplace_back();
      out.name = family.name;
      out.help = escape_help(family.help);
      out.type = type_of(family.kind);
      for (const SeriesSnapshot& series : family.series) {
        prometheus::ClientMetric& metric = out.metric.emplace_back();
        for (const Label& label : series.labels) metric.label.push_back({label.name, label.value});
        if (series.histogram != nullptr)
          metric.histogram = export_histogram(*series.histogram, family.shape);
        else
          metric.gauge.value = metric.counter.value = series.value;
      }
    }
    return families;
  }

 private:
  RegistryState& state_;
};

}  // namespace

std::string Registry::text() const {
  std::ostringstream out;
  prometheus::TextSerializer{}.Serialize(out, Scrape{*state_}.Collect());
  return std::move(out).str();
}

}  // namespace remora::metrics
