#pragma once

/// The engine of a client: it opens sessions and regions.

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include <remora/engine/control.h>
#include <remora/engine/engine.h>
#include <remora/engine/region.h>
#include <remora/engine/uri.h>
#include <remora/owned.h>

#include "base/clock.h"
#include "base/placement.h"
#include "client/engine/attempt.h"
#include "client/engine/shared_sessions.h"
#include "client/region/region_opener.h"
#include "client/services/engine_services.h"
#include "client/session/opening.h"

namespace remora::detail {

class SessionCore;

/// Opens sessions and regions, each over the transport that fits. Shared by the engine's handle and
/// its sessions. Thread-safe.
class EngineCore final : public EngineServices, public RegionOpener {
 public:
  static Result<std::shared_ptr<EngineCore>> create(EngineOptions options);
  EngineCore(EngineOptions options, Placement placement);

  Result<Region> open_region(const Uri& uri, Rights rights, Opening opening,
                             const ControlLimits& limits) override;
  Result<Region> open_again(const Uri& uri, Rights rights, Opening opening,
                            Deadline deadline) override;
  Result<std::shared_ptr<SessionCore>> connect(const Uri& uri, const ControlLimits& limits);

  /// See Engine::status_json().
  [[nodiscard]] std::string status_json(const metrics::StatusQuery& query) const;

 private:
  Result<Region> open_once(const Uri& uri, Rights rights, Opening opening, Deadline deadline,
                           Attempt& attempt);
  [[nodiscard]] Deadline attempt_deadline(Deadline until) const noexcept {
    return std::min(until, deadline_after(options().control_deadline));
  }

  SharedSessions sessions_;
};

/// Engine::open_region() and fence_region() of a handle with this core, which may be null.
Result<Region> open_by(const OwnedShared<EngineCore>& core, std::string_view uri, Rights rights,
                       Opening opening);
/// Engine::connect(), as open_by().
Result<Session> connect_by(const OwnedShared<EngineCore>& core, std::string_view uri);

/// The URI of functions that open a region. Errors: kInvalidArgument.
[[nodiscard]] Result<Uri> region_uri(std::string_view text, Rights rights);

}  // namespace remora::detail
