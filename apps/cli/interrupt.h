#pragma once

/// Signals as a request to stop, for commands that must clean up or report.

#include <remora/result.h>

namespace remora::apps {

/// From now on the first SIGINT, SIGTERM, SIGHUP, SIGQUIT or SIGPIPE sets a flag; the second of the
/// same kind has its default effect. SIGHUP and SIGPIPE stay ignored if they were (nohup). A write
/// beyond the limit on file sizes fails with EFBIG, without SIGXFSZ.
void catch_interrupts() noexcept;
/// The signal that has requested the stop, or 0.
[[nodiscard]] int interrupted() noexcept;
/// kCancelled, naming the signal.
[[nodiscard]] Error interruption() noexcept;

}  // namespace remora::apps
