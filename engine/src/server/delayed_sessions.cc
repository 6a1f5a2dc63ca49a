#include "server/delayed_sessions.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <sys/timerfd.h>
#include <unistd.h>
#include <utility>

#include "server/server_session.h"

namespace remora::detail {

Status DelayedSessions::open() {
  timer_ = UniqueFd{::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)};
  if (!timer_) return Error{Code::kSystem, "timerfd_create"}.with_errno(errno);
  return {};
}

void DelayedSessions::take_timer() const noexcept {
  std::uint64_t expirations = 0;
  (void)!::read(timer_.get(), &expirations, sizeof expirations);
}

void DelayedSessions::serve_at(Clock::time_point due, std::weak_ptr<ServerSession> session) {
  const auto added = waiting_.emplace(due, std::move(session));
  if (added == waiting_.begin()) set_timer();
}

void DelayedSessions::tick() {
  // Those that wait again after this are not due at `now`.
  const Clock::time_point now = Clock::now();
  while (!waiting_.empty() && waiting_.begin()->first <= now) {
    const auto session = waiting_.begin()->second.lock();
    waiting_.erase(waiting_.begin());
    if (session != nullptr) session->serve_delayed();
  }
  set_timer();
}

void DelayedSessions::set_timer() {
  itimerspec when{};
  if (!waiting_.empty()) {
    const auto since = std::max(waiting_.begin()->first.time_since_epoch(), Clock::duration{1});
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
    when.it_value.tv_sec = seconds.count();
    when.it_value.tv_nsec = std::chrono::nanoseconds{since - seconds}.count();
  }
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

}  // namespace remora::detail
