#pragma once

/// Who sleeps until there is something in a sink, and how it is woken.

#include <atomic>
#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace remora::detail {

/// An eventfd that is written to only while its owner rests, and then once: whoever brings
/// something to an owner that is awake pays one exchange and no system call.
///
/// The owner: rest(), then looks, then sleeps on event(), and clear() when that fires. Others:
/// leave what they bring where the owner looks, then tell(). Both exchange on one word, so either
/// the owner's look sees what was brought, or tell() sees that the owner rests.
class EventNotifier {
 public:
  /// Makes the eventfd. False: there is none (errno says why).
  bool open() noexcept {
    event_ = UniqueFd{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    return static_cast<bool>(event_);
  }
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(event_); }
  [[nodiscard]] int event() const noexcept { return event_.get(); }

  // Of the owner.
  void clear() noexcept {
    std::uint64_t told = 0;
    (void)!::read(event_.get(), &told, sizeof told);
  }
  void rest() noexcept { resting_.exchange(true, std::memory_order_acq_rel); }
  /// Awake: what is brought from now on is found without being told of.
  void rise() noexcept { resting_.exchange(false, std::memory_order_acq_rel); }

  /// Any thread.
  void tell() noexcept {
    if (resting_.exchange(false, std::memory_order_acq_rel)) signal_event(event_.get());
  }

 private:
  UniqueFd event_;
  alignas(64) std::atomic<bool> resting_{true};
};

}  // namespace remora::detail
