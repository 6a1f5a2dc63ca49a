#pragma once

/// Wakes a sleeping thread when other threads have work for it.

#include <atomic>
#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace remora::detail {

/// An eventfd that other threads write to only while its owner sleeps, and then once. To notify an
/// owner that is awake costs one atomic exchange and no system call.
///
/// The owner calls announce_sleep(), looks for work, sleeps on event(), and calls take_event() when
/// event() is readable. Another thread first stores its work where the owner looks, and then calls
/// notify(). Both functions exchange the same word, so either the owner finds the work, or notify()
/// sees that the owner sleeps.
class EventNotifier {
 public:
  /// Makes the eventfd. False: the system has none left (errno has the reason).
  bool open() noexcept {
    own_ = UniqueFd{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    event_ = own_.get();
    return static_cast<bool>(own_);
  }
  /// Instead of open(): writes to the eventfd `event`, which outlives this object.
  void attach(int event) noexcept { event_ = event; }
  [[nodiscard]] explicit operator bool() const noexcept { return event_ >= 0; }
  [[nodiscard]] int event() const noexcept { return event_; }

  /// The owner calls these:
  void take_event() noexcept {
    std::uint64_t told = 0;
    (void)!::read(event_, &told, sizeof told);
  }
  void announce_sleep() noexcept { resting_.exchange(true, std::memory_order_acq_rel); }
  /// The owner is awake: from now on it looks for work by itself, and notify() writes nothing.
  void announce_awake() noexcept { resting_.exchange(false, std::memory_order_acq_rel); }

  /// Call it after the work is stored. Any thread.
  void notify() noexcept {
    if (resting_.exchange(false, std::memory_order_acq_rel)) signal_event(event_);
  }

 private:
  UniqueFd own_;
  int event_ = -1;
  alignas(64) std::atomic<bool> resting_{true};
};

}  // namespace remora::detail
