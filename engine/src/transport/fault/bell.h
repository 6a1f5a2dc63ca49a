#pragma once

#include <sys/eventfd.h>

#include "base/unique_fd.h"

namespace remora::detail {

/// Wakes the thread that sleeps on a lane or a channel, after a command has changed the state that
/// it waits for.
class FaultBell {
 public:
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(event_); }
  [[nodiscard]] int event() const noexcept { return event_.get(); }
  void ring() const noexcept { signal_event(event_.get()); }
  void clear() const noexcept {
    eventfd_t count = 0;
    (void)::eventfd_read(event_.get(), &count);
  }

 private:
  UniqueFd event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

}  // namespace remora::detail
