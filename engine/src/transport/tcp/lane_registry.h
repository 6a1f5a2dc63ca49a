#pragma once

/// The tcp sessions that wait for lanes.

#include <cstdint>
#include <map>
#include <memory>

#include <remora/mutex.h>

#include "transport/lane_ticket.h"
#include "transport/tcp/served_session.h"

namespace remora::transport::tcp {

/// Maps the ticket of a lane to its session.
class TcpLaneRegistry {
 public:
  void expect(const LaneTicket& ticket, const std::shared_ptr<ServedSession>& session) {
    const remora::detail::MutexLock lock{mutex_};
    sessions_[ticket.session_id] = {ticket.secret, session};
  }
  void forget(const ServedSession& session) {
    const remora::detail::MutexLock lock{mutex_};
    std::erase_if(sessions_,
                  [&](const auto& entry) { return entry.second.session.get() == &session; });
  }
  /// Null: no session has the ticket.
  [[nodiscard]] std::shared_ptr<ServedSession> find(const LaneTicket& ticket) {
    const remora::detail::MutexLock lock{mutex_};
    const auto found = sessions_.find(ticket.session_id);
    if (found == sessions_.end() || found->second.secret != ticket.secret) return nullptr;
    return found->second.session;
  }

 private:
  struct Expected {
    std::uint64_t secret;
    std::shared_ptr<ServedSession> session;
  };
  remora::detail::Mutex mutex_;
  std::map<std::uint64_t, Expected> sessions_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::transport::tcp
