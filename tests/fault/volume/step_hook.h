#pragma once

/// A step of a mirror's writer at which a test interferes.

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace remora::fault {

/// Calls an action once, in the thread that comes to a step for the nth time. Thread-safe.
class StepHook {
 public:
  /// `step`: a name as StepOpener has them; empty: none. `nth`: from 1.
  StepHook(std::string step, std::uint64_t nth, std::function<void()> action)
      : step_{std::move(step)}, left_{nth}, action_{std::move(action)} {}

  void reached(std::string_view step) {
    if (step == step_ && left_.fetch_sub(1) == 1) action_();
  }

 private:
  const std::string step_;
  std::atomic<std::uint64_t> left_;
  const std::function<void()> action_;
};

}  // namespace remora::fault
