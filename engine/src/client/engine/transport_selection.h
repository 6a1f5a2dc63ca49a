#pragma once

/// Which transports are tried for a server, in which order and for how long, and which error the
/// caller gets if none of them fits.

#include <memory>
#include <string>
#include <vector>

#include <remora/engine/region.h>
#include <remora/engine/uri.h>
#include <remora/result.h>

#include "base/clock.h"
#include "client/engine/attempt.h"
#include "client/engine/passed_over.h"
#include "client/session/opening.h"

namespace remora::detail {

class EngineServices;
class RegionGrant;
class SessionCore;
class SharedSessions;

/// One attempt to reach the server of a URI. Borrows everything.
class TransportSelection {
 public:
  TransportSelection(EngineServices& engine, SharedSessions& sessions, const Uri& uri,
                     Deadline deadline) noexcept
      : engine_{engine}, sessions_{sessions}, uri_{uri}, deadline_{deadline} {}

  /// A session over the first transport that reaches the server. Blocks until the deadline.
  Result<std::shared_ptr<SessionCore>> connect(Attempt& attempt);
  /// A grant of the URI's region, over the first transport that the region has. Blocks until the
  /// deadline.
  Result<std::shared_ptr<RegionGrant>> open(Rights rights, Opening opening, Attempt& attempt);

 private:
  struct Candidate {
    TransportKind kind;
    std::string reason;
  };
  [[nodiscard]] std::vector<Candidate> candidates();
  template <typename Made, typename Use>
  Result<Made> try_candidates(Attempt& attempt, const Use& use);
  [[nodiscard]] Deadline share_of_time(bool last) const noexcept;

  EngineServices& engine_;
  SharedSessions& sessions_;
  const Uri& uri_;
  const Deadline deadline_;
  PassedOver passed_over_;
};

}  // namespace remora::detail
