#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include <remora/metrics/registry.h>
#include <remora/result.h>

#include "base/placement.h"
#include "client/services/poller.h"

namespace remora::detail {

/// The pollers of one engine, which owns it. Not thread-safe.
class Pollers {
 public:
  /// Returns the poller with the fewest queues. Starts another one while there are fewer than
  /// `max_count` and none is idle. Errors: kUnsupported (`max_count` is 0),
  /// kSystem, and the errors of the metric of their CPU time.
  Result<Poller*> pick(std::size_t max_count, std::chrono::nanoseconds spin,
                       const Placement& placement, metrics::Registry& registry);
  /// Whether this thread is one of the pollers.
  [[nodiscard]] bool is_one_of_them() const noexcept {
    return std::any_of(pollers_.begin(), pollers_.end(),
                       [](const auto& poller) { return poller->is_this_thread(); });
  }

 private:
  std::vector<std::unique_ptr<Poller>> pollers_;
};

}  // namespace remora::detail
