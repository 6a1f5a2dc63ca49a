#include "client/datapath/lane_waiters.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include <remora/assert.h>

namespace remora::detail {

LaneWaiters::LaneWaiters() : event_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)} {}

bool LaneWaiters::take_descriptor() noexcept { return !std::exchange(descriptor_taken_, true); }

void LaneWaiters::give_descriptor_back() noexcept {
  REMORA_ASSERT(descriptor_taken_, "the caller that took the descriptor gives it back");
  descriptor_taken_ = on_descriptor_ = false;
  // A caller on the condition may take the descriptor now.
  wake_condition();
}

void LaneWaiters::sleep_on(int lane_fd, Deadline until) noexcept {
  const auto left = std::max(until - Clock::now(), Clock::duration::zero());
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec timeout{.tv_sec = whole.count(), .tv_nsec = (left - whole).count()};
  std::array<pollfd, 2> events{{{.fd = lane_fd, .events = POLLIN, .revents = 0},
                                {.fd = event_.get(), .events = POLLIN, .revents = 0}}};
  ::ppoll(events.data(), events.size(), &timeout, nullptr);
  std::uint64_t wakes = 0;
  if (events[1].revents != 0) (void)!::read(event_.get(), &wakes, sizeof wakes);
}

std::uint64_t LaneWaiters::begin_wait() noexcept {
  ++on_condition_;
  const MutexLock lock{mutex_};
  return wakes_;
}

void LaneWaiters::sleep_until_woken(std::uint64_t wakes_before, Deadline until) noexcept {
  MutexLock lock{mutex_};
  condition_.wait_until(lock, until, [&] {
    mutex_.assert_held();
    return wakes_ != wakes_before;
  });
}

void LaneWaiters::wake_all() noexcept {
  wake_condition();
  // This thread has polled the completion, so the lane's descriptor may not become readable for the
  // caller that sleeps on it.
  if (on_descriptor_) signal_event(event_.get());
}

void LaneWaiters::wake_condition() noexcept {
  if (on_condition_ == 0) return;
  const MutexLock lock{mutex_};
  ++wakes_;
  condition_.notify_all();
}

}  // namespace remora::detail
