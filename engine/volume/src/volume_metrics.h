#pragma once

/// The series of the volumes that a process has open.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/metrics/registry.h>
#include <remora/mutex.h>
#include <remora/volume/volume.h>

namespace remora::volume::detail {

class VolumeCore;

/// All volumes of a registry share one object, whose series are sums over them. A scrape asks each
/// volume for its groups, so that no operation records anything. The series stay until the registry
/// ends; a registry without room for one leaves it out. Thread-safe.
///
/// There is no label with the name of a volume: labels are never texts that a user chooses.
/// Volume::groups() tells of one volume.
class VolumeMetrics {
 public:
  static std::shared_ptr<VolumeMetrics> of(metrics::Registry& registry);
  explicit VolumeMetrics(metrics::Registry& registry);

  /// The revision of a mirror, which need not be opened again when its groups change.
  static constexpr std::uint64_t kFollowsItsGroups = std::numeric_limits<std::uint64_t>::max();

  /// `volume` is borrowed until remove(). `revision`: of its records.
  void add(const VolumeCore& volume, std::uint64_t revision);
  void remove(const VolumeCore& volume) noexcept;

 private:
  void declare(metrics::Registry& registry, std::string_view name, std::string_view help,
               const metrics::Labels& labels, std::function<double()> value);
  [[nodiscard]] double volumes() const;
  [[nodiscard]] double groups(GroupHealth health) const;
  [[nodiscard]] double oldest_revision() const;

  mutable remora::detail::Mutex mutex_;
  std::vector<std::pair<const VolumeCore*, std::uint64_t>> volumes_ REMORA_GUARDED_BY(mutex_);
  std::vector<metrics::CallbackHandle> series_;  ///< ended first: they use the other members
};

}  // namespace remora::volume::detail
