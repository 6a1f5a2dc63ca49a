#pragma once

#include <cstdint>
#include <memory>
#include <set>

#include <remora/engine/types.h>
#include <remora/metrics/registry.h>
#include <remora/mutex.h>

namespace remora::detail {

/// The capacities of the completion queues of all open lanes. The metric shows the smallest, to
/// compare it with the number of completions that one visit finds. All engines of a registry share
/// one object for each transport. Thread-safe.
class CqCapacities {
 public:
  static std::shared_ptr<CqCapacities> of(const metrics::Registry& registry,
                                          TransportKind transport, metrics::Gauge smallest);
  explicit CqCapacities(metrics::Gauge smallest) noexcept : smallest_{smallest} {}
  void add(std::uint32_t capacity);
  void remove(std::uint32_t capacity) noexcept;

 private:
  metrics::Gauge smallest_;
  Mutex mutex_;
  std::multiset<std::uint32_t> all_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
