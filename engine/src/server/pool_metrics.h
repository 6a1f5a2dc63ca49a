#pragma once

/// The series of a server's pool.

#include <memory>
#include <vector>

#include <remora/metrics/registry.h>
#include <remora/result.h>

#include "server/memory/pool.h"

namespace remora::detail {

/// The series exist as long as this object.
class PoolMetrics {
 public:
  /// Errors: as metrics::Registry.
  static Result<PoolMetrics> create(metrics::Registry& registry, const std::shared_ptr<Pool>& pool);
  void close() noexcept { series_.clear(); }

 private:
  std::vector<metrics::CallbackHandle> series_;
};

}  // namespace remora::detail
