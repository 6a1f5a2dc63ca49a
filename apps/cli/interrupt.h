#pragma once

/// SIGINT and SIGTERM as a wish to stop, for commands that have something to tidy up or to report.

#include <remora/result.h>

namespace remora::apps {

/// From now on the first SIGINT or SIGTERM sets a flag; the second has its default effect.
void catch_interrupts() noexcept;
/// The signal that asked to stop, or 0.
[[nodiscard]] int interrupted() noexcept;
/// kCancelled, naming the signal.
[[nodiscard]] Error interruption() noexcept;

}  // namespace remora::apps
