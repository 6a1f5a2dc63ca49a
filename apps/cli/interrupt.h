#pragma once

/// Signals as a wish to stop, for commands that have something to tidy up or to report.

#include <remora/result.h>

namespace remora::apps {

/// From now on the first SIGINT, SIGTERM, SIGHUP, SIGQUIT or SIGPIPE sets a flag; the second of the
/// same kind has its default effect. SIGHUP and SIGPIPE stay ignored where they are (nohup). A
/// write beyond the limit on file sizes fails with EFBIG, without SIGXFSZ.
void catch_interrupts() noexcept;
/// The signal that asked to stop, or 0.
[[nodiscard]] int interrupted() noexcept;
/// kCancelled, naming the signal.
[[nodiscard]] Error interruption() noexcept;

}  // namespace remora::apps
