#pragma once

/// Assertions of what our own code guarantees. Never of bytes from a peer, a file or a NIC: those
/// are checked, and answered with an Error.

#include <cstdio>
#include <cstdlib>

namespace remora::detail {

[[noreturn, gnu::cold, gnu::noinline]] inline void assertion_failed(const char* invariant,
                                                                    const char* file,
                                                                    int line) noexcept {
  std::fprintf(stderr, "remora: a bug in Remora: %s (%s:%d); please report it\n", invariant, file,
               line);
  std::abort();
}

}  // namespace remora::detail

/// Ends the process where `condition` is false. On in every build. `invariant`: a literal that says
/// what always holds, such as "a session that has ended is not resumed".
#define REMORA_ASSERT(condition, invariant)                                    \
  do {                                                                         \
    if (!(condition)) [[unlikely]]                                             \
      ::remora::detail::assertion_failed("" invariant "", __FILE__, __LINE__); \
  } while (false)

/// The same where a measured hot path forbids the test in release builds (NDEBUG).
#ifdef NDEBUG
#define REMORA_ASSERT_HOT(condition, invariant) static_cast<void>(0)
#else
#define REMORA_ASSERT_HOT(condition, invariant) REMORA_ASSERT(condition, invariant)
#endif
