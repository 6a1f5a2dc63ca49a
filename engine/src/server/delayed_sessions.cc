#include "server/delayed_sessions.h"

#include <utility>

#include "server/server_session.h"

namespace remora::detail {

void DelayedSessions::serve_at(Clock::time_point due, std::weak_ptr<ServerSession> session) {
  const auto added = waiting_.emplace(due, std::move(session));
  if (added == waiting_.begin()) set_timer();
}

void DelayedSessions::tick() {
  // Sessions that are added again after this are not due at `now`.
  const Clock::time_point now = Clock::now();
  while (!waiting_.empty() && waiting_.begin()->first <= now) {
    const auto session = waiting_.begin()->second.lock();
    waiting_.erase(waiting_.begin());
    if (session != nullptr) session->serve_delayed();
  }
  set_timer();
}

void DelayedSessions::set_timer() {
  timer_.set(waiting_.empty() ? Deadline::max() : waiting_.begin()->first);
}

}  // namespace remora::detail
