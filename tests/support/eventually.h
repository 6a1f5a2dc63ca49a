#pragma once

/// For what another thread does in its own time: a test waits for it, and fails only when it has
/// not come long after it must have.

#include <chrono>
#include <thread>

namespace remora::test {

inline constexpr std::chrono::seconds kLongAfter{20};

/// Whether `holds()` does, asked each millisecond until it does.
template <typename Condition>
[[nodiscard]] bool eventually(Condition holds, std::chrono::milliseconds within = kLongAfter) {
  const auto until = std::chrono::steady_clock::now() + within;
  while (!holds()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return true;
}

}  // namespace remora::test
