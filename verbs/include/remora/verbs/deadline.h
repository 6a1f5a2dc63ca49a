#pragma once

/// Deadline: the time after which a blocking call ends with an error. An absolute time, so that one
/// deadline covers several steps. Thread safety: a value.

#include <chrono>

namespace remora::verbs {

/// `Deadline::max()`: no limit.
using Deadline = std::chrono::steady_clock::time_point;

/// `duration` from now.
template <typename Rep, typename Period>
[[nodiscard]] Deadline deadline_in(std::chrono::duration<Rep, Period> duration) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(duration);
}

}  // namespace remora::verbs
