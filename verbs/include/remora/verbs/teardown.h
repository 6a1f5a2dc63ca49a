#pragma once

/// Failed verbs calls of destructors: each is counted and passed to one handler.
///
/// Destructors never throw and never abort. A failed teardown leaks the object in the kernel until
/// the process ends; the count shows that it happened, the handler gets the error.
///
/// Thread safety: every function here may be called from any thread at any time.

#include <cstdint>

#include <remora/result.h>

namespace remora::verbs {

/// Called on the thread whose destructor failed; must not throw, block or use the failed object.
using TeardownFailureHandler = void (*)(const Error& error) noexcept;

/// Replaces the handler of the process and returns the earlier one. Null: count only (the default).
TeardownFailureHandler set_teardown_failure_handler(TeardownFailureHandler handler) noexcept;

/// The number of failed teardown calls since the process began.
[[nodiscard]] std::uint64_t teardown_failure_count() noexcept;

/// Counts `error` and passes it to the handler. For code that tears down verbs objects itself.
void report_teardown_failure(const Error& error) noexcept;

}  // namespace remora::verbs
