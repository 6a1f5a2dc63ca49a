#pragma once

/// A grant whose memory is registered again: its session has opened lanes on another device, or the
/// device has returned.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <remora/result.h>

#include "protocol/messages.h"
#include "server/memory/region_entry.h"
#include "server/server_request.h"
#include "transport/grant.h"
#include "transport/server_endpoint.h"

namespace remora::detail {

class ServerSession;

/// The worker begins and ends a renewal. In between a registration thread has the grant, and the
/// worker uses neither `grant` nor `renewed`.
struct GrantRenewal {
  using Then = std::function<void(Result<ServerReply>)>;
  /// A request for a page of the grant's extents.
  struct Asked {
    std::shared_ptr<ServerSession> session;
    control::ExtentsRequest request;
    Then then;
  };

  std::uint64_t grant_id = 0;
  std::shared_ptr<RegionEntry> region;
  Asked first;                                     ///< the request that began the renewal
  transport::LaneKeyRenewal* lane_keys = nullptr;  ///< of the session that sent `first`
  transport::Grant grant;
  Status renewed;
  /// The session or the server has given up the grant: the end of this renewal revokes it.
  std::atomic<bool> given_up{false};

  /// Used only by the worker from here on.

  /// The session that has the grant, or had it when it was given up: the one of `first`, or one
  /// that has resumed that session.
  std::shared_ptr<ServerSession> owner;
  bool leaves_device = false;  ///< see GrantHandle::leave_device()
  std::vector<Asked> waiting;  ///< requests that came meanwhile
};

}  // namespace remora::detail
