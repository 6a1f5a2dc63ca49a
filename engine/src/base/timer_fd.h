#pragma once

/// A timer of an event loop: a descriptor that becomes readable at a time that may be changed.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <sys/timerfd.h>
#include <unistd.h>

#include <remora/result.h>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace remora {

/// Owns the descriptor. take() and set() may be called by two threads at once.
class TimerFd {
 public:
  /// Call it before the other functions. Errors: kSystem.
  Status open() {
    fd_ = UniqueFd{::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)};
    if (!fd_) return Error{Code::kSystem, "timerfd_create"}.with_errno(errno);
    return {};
  }
  [[nodiscard]] int get() const noexcept { return fd_.get(); }
  /// Makes the descriptor unreadable, until the time of the next set().
  void take() const noexcept {
    std::uint64_t expirations = 0;
    (void)!::read(fd_.get(), &expirations, sizeof expirations);
  }
  /// Replaces the time that was set before. Deadline::max(): no time.
  void set(Deadline at) const noexcept {
    itimerspec when{};
    if (at != Deadline::max()) {
      const auto since = std::max(at.time_since_epoch(), Deadline::duration{1});
      const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
      when.it_value.tv_sec = seconds.count();
      when.it_value.tv_nsec = std::chrono::nanoseconds{since - seconds}.count();
    }
    ::timerfd_settime(fd_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
  }

 private:
  UniqueFd fd_;
};

}  // namespace remora
