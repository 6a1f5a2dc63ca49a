#pragma once

/// The share of its time that the worker spends on waiting for clients that do not read.

#include "base/clock.h"

namespace remora::detail {

/// The worker waits a little until a refusal is sent, and for a client whose send queue is full.
/// All such waits together take at most a tenth of its time. Worker only.
class ClientWaitBudget {
 public:
  /// Whether the worker may wait now. After a wait it calls spend() with the time that it has
  /// waited.
  [[nodiscard]] bool allows(Clock::time_point now) const noexcept { return now >= again_; }
  void spend(Clock::time_point began, Clock::time_point now) noexcept {
    again_ = now + 9 * (now - began);
  }

 private:
  Clock::time_point again_{};
};

}  // namespace remora::detail
