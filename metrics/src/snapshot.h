#pragma once

/// All series of a registry with their values, at about one moment: the input of a scrape and of
/// the history.

#include <memory>
#include <string>
#include <vector>

#include "registry_state.h"

namespace remora::metrics {

struct SeriesSnapshot {
  Labels labels;
  double value = 0;                             ///< counters, gauges
  std::unique_ptr<LatencyHistogram> histogram;  ///< histograms, in recorded units
};

struct FamilySnapshot {
  std::string name;
  std::string help;
  Kind kind = Kind::kCounter;
  HistogramShape shape;
  std::vector<SeriesSnapshot> series;  ///< never empty
};

/// Families by name. Calls the callbacks, without the registry's lock, and begins a new interval of
/// `reader`'s high-water marks.
std::vector<FamilySnapshot> take_snapshot(RegistryState& state, MarkReader reader);

/// Division, not multiplication by 1e-9: 1,000 must become the double that prints as 1e-06.
inline double in_base_units(Unit unit, std::uint64_t recorded) noexcept {
  const auto value = static_cast<double>(recorded);
  return unit == Unit::kSeconds ? value / 1e9 : value;
}

}  // namespace remora::metrics
