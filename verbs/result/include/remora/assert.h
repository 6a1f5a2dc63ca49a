#pragma once

/// Assertions of invariants that this library's own code guarantees. Never of bytes from a peer, a
/// file or a NIC: those are checked, and a fault in them is an Error.
///
/// REMORA_ASSERT is the usual form, tested in every build. REMORA_ASSERT_HOT is for code that runs
/// in each operation of the data path, whose instructions tests count: it is tested only in builds
/// with a sanitizer.

#include <cstdio>
#include <cstdlib>

#include <remora/sanitizers.h>

namespace remora::detail {

/// Whether REMORA_ASSERT_HOT tests its condition, for state that only such assertions need.
inline constexpr bool kHotAssertions =
    REMORA_ADDRESS_SANITIZER == 1 || REMORA_THREAD_SANITIZER == 1;

/// Writes the invariant and its place to stderr and aborts.
[[noreturn, gnu::cold, gnu::noinline]] inline void assertion_failed(const char* invariant,
                                                                    const char* file,
                                                                    int line) noexcept {
  std::fprintf(stderr, "remora: a bug in Remora: %s (%s:%d); please report it\n", invariant, file,
               line);
  std::abort();
}

}  // namespace remora::detail

/// Ends the process if `condition` is false. Tested in every build. `invariant`: a literal with the
/// condition that always holds, such as "a session that has ended is not resumed".
#define REMORA_ASSERT(condition, invariant)                                    \
  do {                                                                         \
    if (!(condition)) [[unlikely]]                                             \
      ::remora::detail::assertion_failed("" invariant "", __FILE__, __LINE__); \
  } while (false)

/// The same on the data path: compiled in every build, tested in builds with a sanitizer (gcc and
/// clang, of addresses or of threads). `condition` has no side effect.
#define REMORA_ASSERT_HOT(condition, invariant)                                          \
  do {                                                                                   \
    if constexpr (::remora::detail::kHotAssertions) REMORA_ASSERT(condition, invariant); \
  } while (false)
