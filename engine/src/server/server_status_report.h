#pragma once

/// The report that a server's HTTP endpoint serves: whether the server is alive, whether it should
/// get work, and its regions and sessions as JSON. It is made before the server's memory and used
/// until the endpoint is closed, so it also reports a server that is starting or stopping.

#include <atomic>
#include <string>
#include <vector>

#include <remora/engine/server.h>
#include <remora/metrics/http_endpoint.h>
#include <remora/mutex.h>

#include "base/clock.h"

namespace remora::detail {

class ServerCore;

/// Thread-safe.
class ServerStatusReport {
 public:
  explicit ServerStatusReport(std::vector<RefusedTransport> refused,
                              const config::RdmaSettings& rdma = {})
      : refused_{std::move(refused)}, rdma_{rdma} {}

  /// The server is ready. From now on, until close(), the report is made from `core`.
  void open(const ServerCore& core) noexcept REMORA_EXCLUDES(mutex_);
  /// The server stops: new sessions are refused.
  void drain() noexcept { draining_.store(true); }
  /// Whether the server is drained on request, and gives no new grants.
  void set_drained(bool drained) noexcept { drained_.store(drained); }
  /// On return `core` is not used any more.
  void close() noexcept REMORA_EXCLUDES(mutex_);
  /// Called by the control thread: it is alive.
  void beat() noexcept { beat_.store(Clock::now().time_since_epoch().count()); }

  [[nodiscard]] metrics::Health health() const REMORA_EXCLUDES(mutex_);
  /// Why clients should not be sent here; empty: ready.
  [[nodiscard]] std::vector<std::string> unready() const REMORA_EXCLUDES(mutex_);
  /// A JSON object; engine/docs/status.md has its members.
  [[nodiscard]] std::string json(const metrics::StatusQuery& query = {}) const
      REMORA_EXCLUDES(mutex_);

 private:
  const std::vector<RefusedTransport> refused_;
  const config::RdmaSettings rdma_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> drained_{false};
  std::atomic<Clock::rep> beat_{0};
  /// Held while a report is made from the server: locked before the locks of the server's parts.
  mutable Mutex mutex_;
  const ServerCore* core_ REMORA_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace remora::detail
