#pragma once

/// The clock of mirrors: confirmations and the wait for readers count it.

#include <chrono>
#include <ctime>

namespace remora::volume::detail {

/// CLOCK_BOOTTIME, which goes on while the host is suspended; a test has another. Only its rate
/// counts: no two clients compare their clocks.
class MirrorClock {
 public:
  virtual ~MirrorClock() = default;
  MirrorClock(const MirrorClock&) = delete;
  MirrorClock& operator=(const MirrorClock&) = delete;

  [[nodiscard]] virtual std::chrono::nanoseconds now() const noexcept {
    timespec time{};
    ::clock_gettime(CLOCK_BOOTTIME, &time);
    return std::chrono::seconds{time.tv_sec} + std::chrono::nanoseconds{time.tv_nsec};
  }

  MirrorClock() = default;
};

/// T of engine/docs/volumes.md, and what follows from it.
struct MirrorTimes {
  /// How long a confirmation allows reads, from the time when it was sent.
  std::chrono::nanoseconds confirmed_for = std::chrono::seconds{2};
  /// How much longer the writer waits for readers: 5 % of T, while two clocks of CLOCK_BOOTTIME
  /// differ by 0.1 % at most (adjtimex(2): 500 ppm each).
  std::chrono::nanoseconds drift_margin = std::chrono::milliseconds{100};

  /// When a client that reads confirms again.
  [[nodiscard]] std::chrono::nanoseconds refreshed_after() const noexcept {
    return confirmed_for / 3;
  }
  /// After this time no reader reads what it has confirmed before.
  [[nodiscard]] std::chrono::nanoseconds readers_gone_after() const noexcept {
    return confirmed_for + drift_margin;
  }
};

}  // namespace remora::volume::detail
