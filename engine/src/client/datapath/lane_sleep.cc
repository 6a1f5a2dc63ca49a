#include "client/datapath/lane_sleep.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace remora::detail {

LaneSleep::LaneSleep() : event_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)} {}

void LaneSleep::on_descriptor(int lane_fd, Deadline until) noexcept {
  const auto left = std::max(until - Clock::now(), Clock::duration::zero());
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec timeout{.tv_sec = whole.count(), .tv_nsec = (left - whole).count()};
  std::array<pollfd, 2> events{{{.fd = lane_fd, .events = POLLIN, .revents = 0},
                                {.fd = event_.get(), .events = POLLIN, .revents = 0}}};
  ::ppoll(events.data(), events.size(), &timeout, nullptr);
  std::uint64_t wakes = 0;
  if (events[1].revents != 0) (void)!::read(event_.get(), &wakes, sizeof wakes);
}

void LaneSleep::wake_descriptor() noexcept { signal_event(event_.get()); }

std::uint64_t LaneSleep::wakes() noexcept {
  const MutexLock lock{mutex_};
  return wakes_;
}

void LaneSleep::on_condition(std::uint64_t wakes_before, Deadline until) noexcept {
  MutexLock lock{mutex_};
  condition_.wait_until(lock, until, [&] {
    mutex_.assert_held();
    return wakes_ != wakes_before;
  });
}

void LaneSleep::wake_condition() noexcept {
  const MutexLock lock{mutex_};
  ++wakes_;
  condition_.notify_all();
}

}  // namespace remora::detail
