#include "server/pool_metrics.h"

#include <cstdint>
#include <utility>

namespace remora::detail {

Result<PoolMetrics> PoolMetrics::create(metrics::Registry& registry,
                                        const std::shared_ptr<Pool>& pool) {
  using Read = std::uint64_t (*)(const PoolUsage&);
  static constexpr std::pair<const char*, Read> kStates[] = {
      {"used", [](const PoolUsage& usage) { return usage.used_bytes; }},
      {"freeing", [](const PoolUsage& usage) { return usage.freeing_bytes; }},
      {"free", [](const PoolUsage& usage) { return usage.free_bytes(); }}};
  PoolMetrics made;
  for (const auto& [state, read] : kStates) {
    auto handle = registry.gauge_callback(
        "remora_server_pool_bytes", "Bytes of the pool, by what they are.", {{"state", state}},
        [pool, part = read] { return static_cast<double>(part(pool->usage())); });
    if (!handle) return handle.error();
    made.series_.push_back(std::move(*handle));
  }
  auto orphaned = registry.gauge_callback(
      "remora_server_orphaned_bytes", "Bytes of removed regions that other processes still hold.",
      {}, [pool] { return static_cast<double>(pool->orphaned_bytes()); });
  if (!orphaned) return orphaned.error();
  made.series_.push_back(std::move(*orphaned));
  return made;
}

}  // namespace remora::detail
