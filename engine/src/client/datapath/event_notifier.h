#pragma once

/// Wakes a sleeping thread when other threads have brought it work.

#include <atomic>
#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace remora::detail {

/// An eventfd that other threads write to only while its owner rests, and then once. To bring
/// something to an owner that is awake costs one atomic exchange and no system call.
///
/// The owner calls announce_sleep(), looks for work, sleeps on event(), and calls take_event() when
/// that is readable. Another thread leaves its work where the owner looks, and then calls notify().
/// Both exchange the same word: either the owner's look sees the work, or notify() sees that the
/// owner rests.
class EventNotifier {
 public:
  /// Makes the eventfd. False: there is none (errno says why).
  bool open() noexcept {
    own_ = UniqueFd{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    event_ = own_.get();
    return static_cast<bool>(own_);
  }
  /// Instead of open(): writes to the eventfd `event`, which outlives this object.
  void attach(int event) noexcept { event_ = event; }
  [[nodiscard]] explicit operator bool() const noexcept { return event_ >= 0; }
  [[nodiscard]] int event() const noexcept { return event_; }

  /// By the owner.
  void take_event() noexcept {
    std::uint64_t told = 0;
    (void)!::read(event_, &told, sizeof told);
  }
  void announce_sleep() noexcept { resting_.exchange(true, std::memory_order_acq_rel); }
  /// The owner is awake: from now on it finds work by looking, and notify() writes nothing.
  void announce_awake() noexcept { resting_.exchange(false, std::memory_order_acq_rel); }

  /// Any thread.
  void notify() noexcept {
    if (resting_.exchange(false, std::memory_order_acq_rel)) signal_event(event_);
  }

 private:
  UniqueFd own_;
  int event_ = -1;
  alignas(64) std::atomic<bool> resting_{true};
};

}  // namespace remora::detail
