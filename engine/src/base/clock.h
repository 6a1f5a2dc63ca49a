#pragma once

/// Monotonic time and deadlines.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>

#include <remora/engine/types.h>

namespace remora {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

/// Clock::now() with half of its instructions, since the data path reads the clock on each visit to
/// a lane. Both read CLOCK_MONOTONIC.
[[nodiscard]] inline Clock::time_point clock_now() noexcept {
  timespec now;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return Clock::time_point{std::chrono::nanoseconds{now.tv_sec * 1'000'000'000 + now.tv_nsec}};
}

/// `from` + `timeout`. A timeout outside kDeadlineFloor … kDeadlineCeiling is moved to the nearer
/// of the two.
[[nodiscard]] inline Deadline deadline_after(Clock::time_point from,
                                             std::chrono::nanoseconds timeout) noexcept {
  return from + std::clamp(timeout, kDeadlineFloor, kDeadlineCeiling);
}
[[nodiscard]] inline Deadline deadline_after(std::chrono::nanoseconds timeout) noexcept {
  return deadline_after(Clock::now(), timeout);
}

/// Whole milliseconds until `deadline`, rounded up, as poll(2) and epoll_wait(2) take them. 0 when
/// the deadline has passed; at most `max`.
[[nodiscard]] inline int milliseconds_until(Deadline deadline, int max = 60'000) noexcept {
  const auto left = deadline - Clock::now();
  if (left <= left.zero()) return 0;
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::min<std::int64_t>(milliseconds, max));
}

}  // namespace remora
