#pragma once

/// When a session may hold its lanes, so that they go over all rails again.

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace remora::detail {

/// The pauses between the holds of a session, and how long a hold waits for posted operations.
/// Other sessions have the control thread, too: after a hold that failed, the next one comes later
/// and may take longer. Not thread-safe.
class RailHold {
 public:
  static constexpr std::chrono::milliseconds kFirstTime{25};
  static constexpr std::chrono::milliseconds kMaxTime{250};
  static constexpr std::chrono::milliseconds kMaxPause{30'000};

  [[nodiscard]] bool is_due(Clock::time_point now) const noexcept { return now >= next_; }
  /// How long a hold may wait.
  [[nodiscard]] std::chrono::milliseconds time() const noexcept {
    return std::clamp(pause_ / 2, kFirstTime, kMaxTime);
  }
  /// A hold has ended at `now`. `held`: nothing was posted on any lane.
  void ended(bool held, Clock::time_point now) noexcept {
    pause_ = held ? pause_.zero() : std::clamp(2 * pause_, 4 * kFirstTime, kMaxPause);
    next_ = now + pause_;
  }
  /// The lanes go over all rails that have answered: the next hold is a first one.
  void reset() noexcept { *this = {}; }

 private:
  Clock::time_point next_{};
  std::chrono::milliseconds pause_{0};  ///< doubles while operations are posted
};

}  // namespace remora::detail
