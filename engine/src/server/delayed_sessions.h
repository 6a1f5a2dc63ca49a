#pragma once

/// Sessions whose requests wait for their token bucket (limits.requests_per_second), by the time at
/// which the next token is there: one timer for all of them, so that no thread sleeps.

#include <map>
#include <memory>

#include <remora/result.h>

#include "base/clock.h"
#include "base/timer_fd.h"

namespace remora::detail {

class ServerSession;

/// Worker only, but for open() and timer().
class DelayedSessions {
 public:
  /// Before anything waits. Errors: kSystem.
  Status open() { return timer_.open(); }
  /// Readable when tick() has something to do: the control thread then has the worker call it.
  [[nodiscard]] const TimerFd& timer() const noexcept { return timer_; }

  /// Calls serve_delayed() of the session at `due`, unless it is gone by then. Once for each call.
  void serve_at(Clock::time_point due, std::weak_ptr<ServerSession> session);
  /// Serves those that are due.
  void tick();

 private:
  void set_timer();

  std::multimap<Clock::time_point, std::weak_ptr<ServerSession>> waiting_;
  TimerFd timer_;
};

}  // namespace remora::detail
