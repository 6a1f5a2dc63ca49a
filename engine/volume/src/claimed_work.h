#pragma once

/// Claims a mirror for one work, and releases it.

#include <functional>
#include <memory>
#include <string_view>

#include <remora/engine/engine.h>
#include <remora/volume/cluster.h>
#include <remora/volume/maintenance.h>
#include <remora/volume/management.h>

#include "claimed_volume.h"
#include "mirror_work.h"
#include "mirror_writer.h"
#include "writer_claimed_volume.h"

namespace remora::volume::detail {

using Work = std::function<Managed<void>(MirrorWork&)>;

/// Claims the volume for a command: also if groups are lost. Errors: those of
/// MirrorWriter::claim().
Managed<std::shared_ptr<MirrorWriter>> claim_for_work(const Cluster& cluster, const Engine& engine,
                                                      std::string_view name,
                                                      const MaintenanceOptions& options);

/// Claims the volume, which also makes the members of each group equal, calls `work`, and releases
/// the claim, whatever `work` returns. Errors: those of MirrorWriter::claim() and of `work`, whose
/// detail then says what was done before.
Managed<MaintenanceReport> with_claim(const Cluster& cluster, const Engine& engine,
                                      std::string_view name, const MaintenanceOptions& options,
                                      const Work& work);

/// The same for a claim that the caller holds and keeps. Errors: also kStaleRegion (another client
/// has claimed the volume meanwhile).
Managed<MaintenanceReport> with_claimed(const Cluster& cluster, ClaimedVolume& volume,
                                        MemberRegions& regions, const MaintenanceOptions& options,
                                        const Work& work);

}  // namespace remora::volume::detail
