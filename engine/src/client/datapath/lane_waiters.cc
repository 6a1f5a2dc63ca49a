#include "client/datapath/lane_waiters.h"

#include <utility>

#include <remora/assert.h>

namespace remora::detail {

bool LaneWaiters::take_descriptor() noexcept { return !std::exchange(descriptor_taken_, true); }

void LaneWaiters::give_descriptor_back() noexcept {
  REMORA_ASSERT(descriptor_taken_, "the caller that took the descriptor gives it back");
  descriptor_taken_ = on_descriptor_ = false;
  // A caller that sleeps on the condition may take the descriptor now.
  wake_condition();
}

std::uint64_t LaneWaiters::begin_wait() noexcept {
  ++on_condition_;
  return sleep_.wakes();
}

void LaneWaiters::wake_all() noexcept {
  wake_condition();
  // This thread has polled the completion, so the lane's descriptor may stay unreadable for the
  // caller that sleeps on it.
  if (on_descriptor_) sleep_.wake_descriptor();
}

void LaneWaiters::wake_condition() noexcept {
  if (on_condition_ != 0) sleep_.wake_condition();
}

}  // namespace remora::detail
