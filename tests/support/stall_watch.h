#pragma once

/// When this process was not run: its host stood still, or had no processor for it, or was
/// stopped. What an operation is late by such time is not the engine's doing.

#include <chrono>
#include <thread>
#include <vector>

#include <remora/mutex.h>

namespace remora::test {

/// A thread that does nothing but sleep for kPeriod at a time, on the steady clock: what it comes
/// late by, nothing of this process was run, or hardly. It takes no lock of the engine's, so that a
/// thread of the engine that waits or works for long does not hold it up.
///
/// Thread-safe.
class StallWatch {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPeriod{20};
  /// Less is what a busy processor of an emulated guest takes to come round: it counts for nothing.
  static constexpr std::chrono::milliseconds kLeast{100};

  StallWatch();
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  /// The longest so far.
  [[nodiscard]] std::chrono::milliseconds longest() const;
  /// Of the time from `from` to `to` what this process stood still, with what it still does.
  [[nodiscard]] std::chrono::nanoseconds within(Clock::time_point from, Clock::time_point to) const;
  /// Forgets what there was since `from`, which was meant: this process has had itself stopped.
  void overlook(Clock::time_point from);

 private:
  struct Stall {
    Clock::time_point began, ended;
  };
  void watch();

  mutable detail::Mutex mutex_;
  detail::Condition ended_;
  bool over_ REMORA_GUARDED_BY(mutex_) = false;
  /// When the thread last ran.
  Clock::time_point awake_ REMORA_GUARDED_BY(mutex_) = Clock::now();
  std::vector<Stall> stalls_ REMORA_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace remora::test
