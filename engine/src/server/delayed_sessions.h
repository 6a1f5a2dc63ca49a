#pragma once

/// Sessions whose requests wait for their token bucket (limits.requests_per_second), ordered by the
/// time of their next token. One timer serves all of them, so that no thread sleeps.

#include <map>
#include <memory>

#include <remora/result.h>

#include "base/clock.h"
#include "base/timer_fd.h"

namespace remora::detail {

class ServerSession;

/// Worker only, except open() and timer().
class DelayedSessions {
 public:
  /// Called before any session waits. Errors: kSystem.
  Status open() { return timer_.open(); }
  /// Readable when tick() has sessions to serve: then the control thread has the worker call it.
  [[nodiscard]] const TimerFd& timer() const noexcept { return timer_; }

  /// Calls serve_delayed() of the session at `due`, unless the session has been destroyed. Once for
  /// each call.
  void serve_at(Clock::time_point due, std::weak_ptr<ServerSession> session);
  /// Serves the sessions that are due.
  void tick();

 private:
  void set_timer();

  std::multimap<Clock::time_point, std::weak_ptr<ServerSession>> waiting_;
  TimerFd timer_;
};

}  // namespace remora::detail
