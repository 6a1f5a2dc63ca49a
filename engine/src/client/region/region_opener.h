#pragma once

/// Opens regions by their URIs.

#include <remora/engine/control.h>
#include <remora/engine/region.h>
#include <remora/engine/uri.h>
#include <remora/result.h>

#include "base/clock.h"
#include "client/session/opening.h"

namespace remora::detail {

/// The engine, as its regions use it: a region or a lock opens itself again through it. Lives at
/// least as long as these regions. Thread-safe.
class RegionOpener {
 public:
  virtual ~RegionOpener() = default;
  /// Blocks until the server has answered, or until `limits` end the call: see
  /// EngineOptions::connect_for.
  virtual Result<Region> open_region(const Uri& uri, Rights rights, Opening opening,
                                     const ControlLimits& limits) = 0;
  /// As open_region(), for a client that had the region open. Makes one attempt, whatever
  /// EngineOptions::connect_for says, until `deadline`, and at most for
  /// EngineOptions::control_deadline.
  virtual Result<Region> open_again(const Uri& uri, Rights rights, Opening opening,
                                    Deadline deadline) = 0;
};

}  // namespace remora::detail
