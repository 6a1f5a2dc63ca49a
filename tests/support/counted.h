#pragma once

/// The part of a program whose instructions count (support/callgrind.h).

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else  // where valgrind is not installed, nothing counts
#define CALLGRIND_START_INSTRUMENTATION static_cast<void>(0)
#define CALLGRIND_STOP_INSTRUMENTATION static_cast<void>(0)
#endif

namespace remora::test {

/// Callgrind counts while it lives, on all threads; without callgrind it does nothing. Neither the
/// start of the program nor its end is counted, and both are faster for it.
class Counted {
 public:
  Counted() noexcept { CALLGRIND_START_INSTRUMENTATION; }
  ~Counted() { CALLGRIND_STOP_INSTRUMENTATION; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
};

}  // namespace remora::test
