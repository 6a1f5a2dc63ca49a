#pragma once

/// The pause between two checks of a thread that waits without sleeping.

#include <chrono>
#include <thread>

#include "base/clock.h"

namespace remora::detail {

/// Tells the processor that the caller waits in a loop.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// In this time the answer may be on its way from another processor. After it, the thread that
/// gives the answer more likely waits for this processor.
inline constexpr std::chrono::microseconds kSpinAlone{20};

/// `waited`: the time since the last event. After kSpinAlone it lets other threads run; if there
/// are none, it returns at once.
inline void spin_pause(Clock::duration waited) noexcept {
  if (waited < kSpinAlone)
    relax();
  else
    std::this_thread::yield();
}

}  // namespace remora::detail
