#include "snapshot.h"

#include <cstddef>
#include <utility>

namespace remora::metrics {
namespace {

using Source = RegistryState::Source;

// A callback series whose value must still be read, and its place in the snapshot.
struct Pending {
  std::shared_ptr<RegistryCallback> entry;
  std::size_t family;
  std::size_t series;
};

SeriesSnapshot read_series(RegistryState& state, const RegistryState::Family& family,
                           const RegistryState::Series& series, MarkReader reader)
    REMORA_REQUIRES(state.mutex) {
  SeriesSnapshot out;
  if (family.kind == Kind::kHistogram)
    out.histogram = std::make_unique<LatencyHistogram>(state.read_histogram(series.cell));
  else if (series.source == Source::kHighWater)
    out.value = static_cast<double>(RegistryState::take_mark(*series.gauge, reader));
  else if (series.source != Source::kCallback)
    out.value = state.read_plain(series);
  return out;
}

std::vector<FamilySnapshot> read_families(RegistryState& state, MarkReader reader,
                                          std::vector<Pending>& pending) {
  std::vector<FamilySnapshot> families;
  const detail::MutexLock lock{state.mutex};
  families.reserve(state.families.size());
  for (const auto& [name, family] : state.families) {
    FamilySnapshot& out = families.emplace_back();
    out.name = name;
    out.help = family.help;
    out.kind = family.kind;
    out.shape = family.shape;
    for (const auto& [labels, series] : family.series) {
      if (series.source == Source::kCallback)
        pending.push_back({series.entry, families.size() - 1, out.series.size()});
      out.series.push_back(read_series(state, family, series, reader));
      out.series.back().labels = labels;
    }
  }
  return families;
}

}  // namespace

std::vector<FamilySnapshot> take_snapshot(RegistryState& state, MarkReader reader) {
  std::vector<Pending> pending;
  std::vector<FamilySnapshot> families = read_families(state, reader, pending);
  // Backwards, so that erasing the series of a callback that has just gone changes no other place.
  for (auto it = pending.rbegin(); it != pending.rend(); ++it) {
    auto& series = families[it->family].series;
    if (!call(*it->entry, series[it->series].value))
      series.erase(series.begin() + static_cast<std::ptrdiff_t>(it->series));
  }
  std::erase_if(families, [](const FamilySnapshot& family) { return family.series.empty(); });
  return families;
}

}  // namespace remora::metrics
