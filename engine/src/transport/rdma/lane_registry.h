#pragma once

#include <cstdint>
#include <map>

#include <remora/mutex.h>

#include "transport/lane_ticket.h"

namespace remora::transport::rdma {

class RdmaServerEndpoint;

/// Maps the ticket of a lane to the endpoint of its session. Any thread.
class LaneRegistry {
 public:
  void expect(const LaneTicket& ticket, RdmaServerEndpoint* endpoint) {
    const remora::detail::MutexLock lock{mutex_};
    sessions_[ticket.session_id] = {ticket.secret, endpoint};
  }
  void forget(RdmaServerEndpoint* endpoint) {
    const remora::detail::MutexLock lock{mutex_};
    std::erase_if(sessions_, [&](const auto& entry) { return entry.second.endpoint == endpoint; });
  }
  /// Calls `serve(endpoint)` while the endpoint cannot be destroyed. False: there is no such
  /// session.
  template <typename Serve>
  bool with(const LaneTicket& ticket, Serve&& serve) {
    const remora::detail::MutexLock lock{mutex_};
    const auto found = sessions_.find(ticket.session_id);
    if (found == sessions_.end() || found->second.secret != ticket.secret) return false;
    serve(*found->second.endpoint);
    return true;
  }

 private:
  struct Expected {
    std::uint64_t secret;
    RdmaServerEndpoint* endpoint;
  };
  remora::detail::Mutex mutex_;
  std::map<std::uint64_t, Expected> sessions_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::transport::rdma
