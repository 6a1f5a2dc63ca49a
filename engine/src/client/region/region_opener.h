#pragma once

/// Opens regions by their URIs.

#include <remora/engine/control.h>
#include <remora/engine/region.h>
#include <remora/engine/uri.h>
#include <remora/result.h>

#include "base/clock.h"
#include "client/session/opening.h"

namespace remora::detail {

/// The engine as the regions that it has opened know it: a region and a lock open themselves again
/// through it. It lives at least as long as these regions.
class RegionOpener {
 public:
  virtual ~RegionOpener() = default;
  /// Blocks until the server has answered or `limits` end the call: see EngineOptions::connect_for.
  virtual Result<Region> open_region(const Uri& uri, Rights rights, Opening opening,
                                     const ControlLimits& limits) = 0;
  /// The same for a client that had the region open: tried once, whatever
  /// EngineOptions::connect_for says, until `deadline`, and for EngineOptions::control_deadline at
  /// most.
  virtual Result<Region> open_again(const Uri& uri, Rights rights, Opening opening,
                                    Deadline deadline) = 0;
};

}  // namespace remora::detail
