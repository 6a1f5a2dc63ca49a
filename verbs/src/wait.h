#pragma once

/// Sleeping on one descriptor until a deadline. Internal.

#include <remora/result.h>
#include <remora/verbs/deadline.h>

namespace remora::verbs::detail {

/// Makes `fd` non-blocking and close-on-exec. Errors: kSystem (errno kept).
Status make_non_blocking(int fd);

/// Sleeps until `fd` is readable. Polls at least once, also after the deadline.
/// Errors: kTimedOut; kSystem (errno kept).
Status wait_readable(int fd, Deadline deadline);

/// Milliseconds until `deadline`, rounded up, at least `floor_ms`.
[[nodiscard]] int milliseconds_left(Deadline deadline, int floor_ms) noexcept;

}  // namespace remora::verbs::detail
