#pragma once

#include <array>
#include <memory>

#include <remora/metrics/registry.h>
#include <remora/result.h>

#include "base/thread_clocks.h"

namespace remora::transport::tcp {

/// The series of requests that are served over tcp.
struct ServedMetrics {
  std::array<metrics::Counter, 4> operations;  ///< by Opcode
  std::array<metrics::Counter, 2> bytes;       ///< [0]: read, [1]: written
  metrics::Counter refused;
  metrics::Counter corrupt;
  metrics::Counter rejected_connections;
  std::shared_ptr<metrics::Registry> registry;

  /// Errors: those of metrics::Registry.
  static Result<ServedMetrics> create(std::shared_ptr<metrics::Registry> registry);
};

/// The CPU clocks of this process's threads that serve tcp. Never destroyed: servers and registries
/// may end after static objects do.
[[nodiscard]] remora::detail::ThreadClocks& serving_clocks();

}  // namespace remora::transport::tcp
