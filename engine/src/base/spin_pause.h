#pragma once

/// The pause between two looks of a thread that waits without sleeping.

#include <chrono>
#include <thread>

#include "base/clock.h"

namespace remora::detail {

/// Tells the core that this is a waiting loop.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// For so long an answer may well be on its way from another processor. Later it is likelier that
/// the thread that gives it waits for this processor.
inline constexpr std::chrono::microseconds kSpinAlone{20};

/// `waited`: since something came last. Lets other threads run, after a while; a thread that is
/// alone on its processor comes back at once.
inline void spin_pause(Clock::duration waited) noexcept {
  if (waited < kSpinAlone)
    relax();
  else
    std::this_thread::yield();
}

}  // namespace remora::detail
