#include "server/cluster_metrics.h"

#include <string>

namespace remora::apps {

Result<std::unique_ptr<ClusterMetrics>> ClusterMetrics::create(
    std::shared_ptr<metrics::Registry> registry, std::chrono::nanoseconds lease,
    Clock::time_point (*now)()) {
  std::unique_ptr<ClusterMetrics> made{new ClusterMetrics{std::move(registry), lease, now}};
  if (const Status declared = made->declare(); !declared) return declared.error();
  return made;
}

Status ClusterMetrics::declare() {
  auto registered = registry_->gauge_callback(
      "remora_server_cluster_registered",
      "1: the record of this server stands in its cluster; 0: it does not.", {}, [this] {
        return registered_.load(std::memory_order_relaxed) && age() <= lease_ ? 1.0 : 0.0;
      });
  if (!registered) return registered.error();
  auto kept = registry_->gauge_callback(
      "remora_server_cluster_keep_alive_age_seconds",
      "Time since the lease of the server's record was granted or renewed; before the first time, "
      "since the server began to try.",
      {}, [this] { return std::chrono::duration<double>{age()}.count(); });
  if (!kept) return kept.error();
  constexpr std::array<const char*, kFailures> kNames{"store", "name_taken"};
  for (std::size_t i = 0; i < kFailures; ++i) {
    const auto counter =
        registry_->counter("remora_server_cluster_errors_total",
                           "Attempts to register the server, or to renew its record, that failed.",
                           {{"reason", kNames[i]}});
    if (!counter) return counter.error();
    failures_[i] = *counter;
  }
  series_ = {std::move(*registered), std::move(*kept)};
  return ok_status();
}

}  // namespace remora::apps
