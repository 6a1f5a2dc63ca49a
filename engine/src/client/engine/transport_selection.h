#pragma once

/// The transports that are tried for a server, their order and their share of the time, and the
/// error for the caller if none of them fits.

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

/// One attempt to reach the server of a URI. Borrows its arguments. One thread.
class TransportSelection {
 public:
  TransportSelection(EngineServices& engine, SharedSessions& sessions, const Uri& uri,
                     Deadline deadline) noexcept
      : engine_{engine}, sessions_{sessions}, uri_{uri}, deadline_{deadline} {}

  /// Returns a session over the first transport that reaches the server. Blocks until the deadline.
  Result<std::shared_ptr<SessionCore>> connect(Attempt& attempt);
  /// Returns a grant of the URI's region, over the first transport that the region allows. Blocks
  /// until the deadline.
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
