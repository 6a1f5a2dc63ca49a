#pragma once

/// Events that the server sends to one client without a request: revocations, and the end of the
/// server.

#include <cstdint>
#include <deque>
#include <optional>

#include <remora/engine/types.h>
#include <remora/result.h>

#include "protocol/messages.h"

namespace remora::detail {

class ServerCore;
class ServerSession;

/// Has one unacknowledged event at a time: the client keeps room for one message that it has not
/// requested, and acknowledges it. Worker only.
class EventSender {
 public:
  EventSender(ServerCore& server, ServerSession& session) noexcept
      : server_{server}, session_{session} {}

  /// Sends the event after those that were queued before.
  void send(control::Event event);
  /// Queues the event after an answer that is about to be sent: see send_next().
  void queue(control::Event event);
  /// Sends the next event, unless one is not acknowledged yet.
  void send_next();

  struct Acknowledged {
    std::uint64_t grant_id = 0;  ///< the grant that the event was about; 0: none
    Reason reason = Reason::kNone;
  };
  /// The client has acknowledged the event. Empty: it is not the unacknowledged one.
  std::optional<Acknowledged> acknowledge(std::uint64_t event_id);
  [[nodiscard]] bool awaits(std::uint64_t event_id) const noexcept {
    return in_flight_id_ != 0 && event_id == in_flight_id_;
  }
  /// Whether the client has acknowledged all events.
  [[nodiscard]] bool idle() const noexcept { return in_flight_id_ == 0 && waiting_.empty(); }
  /// Drops the events about a grant that is gone.
  void drop_grant(std::uint64_t grant_id);
  void clear() noexcept { waiting_.clear(); }

  /// The event that asks the client to stop using a grant.
  [[nodiscard]] control::Event revoking(std::uint64_t grant_id, Reason reason) const;

 private:
  ServerCore& server_;
  ServerSession& session_;
  std::deque<control::Event> waiting_;  ///< not sent yet: one for each grant at most, and one drain
  std::uint64_t in_flight_id_ = 0;      ///< not acknowledged yet; 0: none
  Acknowledged in_flight_;              ///< its subject
  std::uint64_t next_id_ = 1;
};

}  // namespace remora::detail
