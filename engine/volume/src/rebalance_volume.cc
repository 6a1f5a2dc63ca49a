#include <remora/volume/maintenance.h>

#include "claimed_work.h"
#include "volume_builder.h"

namespace remora::volume {

Managed<MaintenanceReport> rebalance_volume(const Cluster& cluster, const Engine& engine,
                                            std::string_view name,
                                            const MaintenanceOptions& options) {
  const auto layout = cluster.layout(name);
  if (!layout) return failure(layout.error());
  if (layout->volume.kind != Kind::kMirror)
    return failure(Error{Code::kUnsupported, "rebalance volume"}.with_subject(name),
                   "a striped volume has one copy of each byte, which cannot move while clients "
                   "write to it: copy it to a new volume");
  return detail::with_claim(cluster, engine, name, options, [](detail::MirrorWork& work) {
    // Before that, copies that are missing: a group may have one only.
    if (auto restored = work.restore_copies(); !restored) return restored;
    return work.rebalance();
  });
}

}  // namespace remora::volume
