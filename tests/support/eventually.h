#pragma once

/// For what another thread does in its own time: a test waits for it, and fails only when it has
/// not come long after it must have.

#include <algorithm>
#include <chrono>
#include <thread>

namespace remora::test {

inline constexpr std::chrono::seconds kLongAfter{30};

/// A time to wait for, that a host which stands still does not use up: of what passes between two
/// looks at it a second counts at most. Not thread-safe.
class Patience {
 public:
  explicit Patience(std::chrono::nanoseconds time = kLongAfter) : left_{time} {}
  /// Ask in a loop that looks for the event each time, and a last time afterwards.
  [[nodiscard]] bool over() {
    const auto now = std::chrono::steady_clock::now();
    left_ -= std::min<std::chrono::nanoseconds>(now - before_, std::chrono::seconds{1});
    before_ = now;
    return left_ <= std::chrono::nanoseconds{0};
  }

 private:
  std::chrono::nanoseconds left_;
  std::chrono::steady_clock::time_point before_ = std::chrono::steady_clock::now();
};

/// Whether `holds()` does, asked each millisecond until it does.
template <typename Condition>
[[nodiscard]] bool eventually(Condition holds, std::chrono::nanoseconds within = kLongAfter) {
  for (Patience patience{within}; !holds();) {
    if (patience.over()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return true;
}

}  // namespace remora::test
