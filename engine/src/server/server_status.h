#pragma once

/// What a server's HTTP endpoint says of it: whether it is alive, whether it should get work, and
/// its regions and sessions as JSON. Made before the server's memory is, and asked until the
/// endpoint has gone, so it knows a server that is still starting and one that stops.

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include <remora/engine/server.h>
#include <remora/metrics/http_endpoint.h>

#include "base/clock.h"

namespace remora::detail {

class ServerCore;

/// Thread-safe.
class ServerStatusReport {
 public:
  ServerStatusReport(const config::Limits& limits, std::vector<RefusedTransport> refused)
      : limits_{limits}, refused_{std::move(refused)} {}

  /// From now on `core` is asked, until close(). It serves.
  void open(const ServerCore& core) noexcept;
  /// It takes nobody new.
  void drain() noexcept { draining_.store(true); }
  /// On return the server is not being asked, and is not again.
  void close() noexcept;
  /// The control thread has come round.
  void beat() noexcept { beat_.store(Clock::now().time_since_epoch().count()); }

  [[nodiscard]] metrics::Health health() const;
  /// Why clients should not be sent here; none: ready.
  [[nodiscard]] std::vector<std::string> unready() const;
  /// A JSON object; engine/docs/status.md has its members.
  [[nodiscard]] std::string json(const metrics::StatusQuery& query = {}) const;

 private:
  const config::Limits limits_;
  const std::vector<RefusedTransport> refused_;
  std::atomic<bool> draining_{false};
  std::atomic<Clock::rep> beat_{0};
  mutable std::mutex mutex_;  // held while the server is asked
  const ServerCore* core_ = nullptr;
};

}  // namespace remora::detail
