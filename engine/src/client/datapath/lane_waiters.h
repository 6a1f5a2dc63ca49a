#pragma once

/// The callers that wait for a lane. Each completion wakes all of them, and each looks for its own.

#include <cstddef>
#include <cstdint>

#include <remora/assert.h>

#include "client/datapath/lane_sleep.h"

namespace remora::detail {

/// With the lane's lock held. The callers sleep in `sleep`, without it.
class LaneWaiters {
 public:
  /// `sleep` outlives this.
  explicit LaneWaiters(LaneSleep& sleep) noexcept : sleep_{sleep} {}
  LaneWaiters(const LaneWaiters&) = delete;
  LaneWaiters& operator=(const LaneWaiters&) = delete;

  /// Returns true for one caller at a time, until that caller calls give_descriptor_back().
  [[nodiscard]] bool take_descriptor() noexcept;
  void give_descriptor_back() noexcept;
  /// The caller with the descriptor is about to sleep: from now on a thread that polls a completion
  /// wakes it.
  void announce_sleep() noexcept { on_descriptor_ = true; }

  /// A caller is about to sleep on the condition. Returns the number of wakes so far.
  [[nodiscard]] std::uint64_t begin_wait() noexcept;
  void end_wait() noexcept {
    REMORA_ASSERT(on_condition_ > 0, "a caller that has begun to wait ends its wait once");
    --on_condition_;
  }

  /// The calling thread has polled a completion.
  void wake() noexcept {
    if (on_condition_ != 0 || on_descriptor_) [[unlikely]]
      wake_all();
  }

 private:
  void wake_all() noexcept;
  void wake_condition() noexcept;

  LaneSleep& sleep_;
  bool descriptor_taken_ = false;
  bool on_descriptor_ = false;
  std::size_t on_condition_ = 0;
};

}  // namespace remora::detail
