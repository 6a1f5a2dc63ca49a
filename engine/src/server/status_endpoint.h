#pragma once

/// A server's HTTP endpoint for metrics, health and status, and the report that it serves.

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include <remora/config/server_config.h>
#include <remora/metrics/http_endpoint.h>
#include <remora/metrics/registry.h>
#include <remora/result.h>

#include "server/server_status_report.h"

namespace remora::detail {

/// Opened before the server's memory is made, and closed when its sessions have had time to leave.
class StatusEndpoint {
 public:
  /// Without HTTP.
  explicit StatusEndpoint(std::shared_ptr<ServerStatusReport> report) noexcept
      : report_{std::move(report)} {}
  /// With HTTP if `metrics.address` is configured. A name in it is used as the first address of
  /// this machine to which it resolves. Errors: those of own_addresses() and HttpEndpoint::start().
  static Result<StatusEndpoint> open(const config::Metrics& metrics,
                                     const std::shared_ptr<metrics::Registry>& registry,
                                     std::shared_ptr<ServerStatusReport> report,
                                     const std::stop_token& stop);

  [[nodiscard]] ServerStatusReport& report() const noexcept { return *report_; }
  /// The URL, also after close(); empty without HTTP. Any thread.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  /// On return the server is not used any more.
  void close() noexcept;

 private:
  std::shared_ptr<ServerStatusReport> report_;
  std::string address_;
  std::optional<metrics::HttpEndpoint> http_;
};

}  // namespace remora::detail
