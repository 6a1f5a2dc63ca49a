#pragma once

/// The start-up proof of MemoryMonitor. Internal.

#include <string>

namespace remora::verbs::detail {

/// Whether `userfault` reports an unmapping by another thread, and reports that a change waits as
/// long as any does. Otherwise closes it and sets `why`. Blocks for milliseconds, on failure for
/// seconds.
[[nodiscard]] bool prove_monitoring(int userfault, std::string& why);

}  // namespace remora::verbs::detail
