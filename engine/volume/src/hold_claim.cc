#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include <remora/volume/maintenance.h>

#include "claimed_work.h"
#include "volume_builder.h"

namespace remora::volume {

Managed<void> hold_claim(const Cluster& cluster, const Engine& engine, std::string_view name,
                         const MaintenanceOptions& options,
                         const std::function<void(const VolumeRecord&)>& claimed) {
  constexpr std::chrono::milliseconds kAskEach{100};
  auto writer = detail::claim_for_work(cluster, engine, name, options);
  if (!writer) return tl::unexpected<Failure>{writer.error()};
  detail::WriterClaimedVolume volume{*writer};
  if (claimed) claimed(volume.volume());
  while (volume.claimed() && !(options.stop && options.stop()))
    std::this_thread::sleep_for(kAskEach);
  if (!volume.claimed())
    return failure(Error{Code::kAccessRefused, "claim of a volume"}
                       .with_reason(Reason::kFenced)
                       .with_subject(name),
                   "another client has taken the claim");
  if (const Status released = (*writer)->release(); !released) return failure(released.error());
  return {};
}

Managed<void> release_claim(const Cluster& cluster, const Engine& engine, std::string_view name,
                            const MaintenanceOptions& options) {
  MaintenanceOptions stealing = options;
  stealing.steal = true;
  auto writer = detail::claim_for_work(cluster, engine, name, stealing);
  if (!writer) return tl::unexpected<Failure>{writer.error()};
  if (const Status released = (*writer)->release(); !released) return failure(released.error());
  return {};
}

}  // namespace remora::volume
