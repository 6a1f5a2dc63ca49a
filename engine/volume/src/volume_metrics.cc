#include "volume_metrics.h"

#include <algorithm>
#include <array>
#include <string>

#include <remora/owned.h>

#include "per_registry.h"
#include "volume_core.h"

namespace remora::volume::detail {

namespace {

constexpr std::array kHealths{GroupHealth::kOk, GroupHealth::kUnreachable, GroupHealth::kLost,
                              GroupHealth::kRevoked};

remora::detail::PerProcess<PerRegistry<VolumeMetrics>> g_metrics;

}  // namespace

std::shared_ptr<VolumeMetrics> VolumeMetrics::of(metrics::Registry& registry) {
  return g_metrics.get().of(registry, [&] { return std::make_shared<VolumeMetrics>(registry); });
}

VolumeMetrics::VolumeMetrics(metrics::Registry& registry) {
  declare(registry, "remora_client_volumes", "Open volumes.", {}, [this] { return volumes(); });
  for (const GroupHealth health : kHealths)
    declare(registry, "remora_client_volume_groups",
            "Groups of open striped volumes, by their state.",
            {{"state", std::string{to_string(health)}}}, [this, health] { return groups(health); });
  declare(registry, "remora_client_volume_metadata_revision",
          "Revision of the store at the last change of a striped volume's records, as it was "
          "opened; of several volumes the lowest.",
          {}, [this] { return oldest_revision(); });
}

void VolumeMetrics::declare(metrics::Registry& registry, std::string_view name,
                            std::string_view help, const metrics::Labels& labels,
                            std::function<double()> value) {
  auto made = registry.gauge_callback(name, help, labels, std::move(value));
  if (made) series_.push_back(std::move(*made));
}

void VolumeMetrics::add(const VolumeCore& volume, std::uint64_t revision) {
  const remora::detail::MutexLock lock{mutex_};
  volumes_.emplace_back(&volume, revision);
}

void VolumeMetrics::remove(const VolumeCore& volume) noexcept {
  const remora::detail::MutexLock lock{mutex_};
  std::erase_if(volumes_, [&](const auto& entry) { return entry.first == &volume; });
}

double VolumeMetrics::volumes() const {
  const remora::detail::MutexLock lock{mutex_};
  return static_cast<double>(volumes_.size());
}

double VolumeMetrics::groups(GroupHealth health) const {
  const remora::detail::MutexLock lock{mutex_};
  std::size_t found = 0;
  for (const auto& [volume, revision] : volumes_) found += volume->count(health);
  return static_cast<double>(found);
}

double VolumeMetrics::oldest_revision() const {
  const remora::detail::MutexLock lock{mutex_};
  if (volumes_.empty()) return 0;
  const auto oldest =
      std::min_element(volumes_.begin(), volumes_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return oldest->second == kFollowsItsGroups ? 0 : static_cast<double>(oldest->second);
}

}  // namespace remora::volume::detail
