#pragma once

/// The engine of a client: it opens sessions and regions.

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <remora/engine/control.h>
#include <remora/engine/engine.h>
#include <remora/engine/region.h>
#include <remora/engine/uri.h>
#include <remora/mutex.h>

#include "base/clock.h"
#include "base/placement.h"
#include "client/region/region_opener.h"
#include "client/services/engine_services.h"
#include "client/session/opening.h"

namespace remora::detail {

class PassedOver;
class SessionCore;

/// Opens sessions and regions, each over the transport that fits. Thread-safe.
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
  /// One connect at a time to each server, so that sessions are shared; the wait has a deadline.
  class Turn {
   public:
    Turn(EngineCore& engine, std::string key, Deadline deadline);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    [[nodiscard]] bool mine() const noexcept { return mine_; }

   private:
    EngineCore& engine_;
    std::string key_;
    bool mine_ = false;
  };
  struct Candidate {
    TransportKind kind;
    std::string reason;
  };
  /// One of several attempts to connect.
  struct Attempt {
    /// The server has let the client in, and what it said is not to be asked for again.
    bool answered = false;
    std::string passed_over{};  ///< PassedOver::text() of the latest that came to nothing
  };
  std::vector<Candidate> candidates(const Uri& uri, Deadline deadline,
                                    PassedOver& passed_over) const;
  template <typename Make>
  auto retry_until_admitted(const Uri& uri, const ControlLimits& limits, const Make& make)
      -> decltype(make(std::declval<Attempt&>()));
  Result<Region> open_once(const Uri& uri, Rights rights, Opening opening, Deadline deadline,
                           Attempt& attempt);
  Result<std::shared_ptr<SessionCore>> connect_once(const Uri& uri, Deadline deadline,
                                                    Attempt& attempt);
  [[nodiscard]] Deadline attempt_deadline(const ControlLimits& limits) const noexcept {
    return std::min(limits.until, deadline_after(options().control_deadline));
  }
  Result<std::shared_ptr<SessionCore>> session(const Uri& uri, TransportKind kind,
                                               bool hardware_only, Deadline deadline);

  mutable Mutex mutex_;  ///< never locked on the data path
  Condition turn_over_;
  std::set<std::string> connecting_
      REMORA_GUARDED_BY(mutex_);  ///< the keys of sessions_ that have no session yet
  std::map<std::string, std::weak_ptr<SessionCore>> sessions_ REMORA_GUARDED_BY(mutex_);
};

/// Of open_region() and its like. Errors: kInvalidArgument.
[[nodiscard]] Result<Uri> region_uri(std::string_view text, Rights rights);

}  // namespace remora::detail
