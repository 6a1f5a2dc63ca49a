#include "server/status_endpoint.h"

#include <utility>

#include "server/own_addresses.h"

namespace remora::detail {

namespace {

metrics::HttpOptions http_options(const config::Metrics& metrics,
                                  const std::shared_ptr<ServerStatusReport>& report) {
  metrics::HttpOptions options;
  options.allowed_hosts = metrics.allowed_hosts;
  options.access = {.token = metrics.token, .user = metrics.user, .password = metrics.password};
  options.health = [report] { return report->health(); };
  options.unready = [report] { return report->unready(); };
  options.status_page = [report](const metrics::StatusQuery& query) { return report->json(query); };
  return options;
}

}  // namespace

Result<StatusEndpoint> StatusEndpoint::open(const config::Metrics& metrics,
                                            const std::shared_ptr<metrics::Registry>& registry,
                                            std::shared_ptr<ServerStatusReport> report,
                                            const std::stop_token& stop) {
  StatusEndpoint made{std::move(report)};
  if (!metrics.address) return made;
  const auto configured = config::parse_endpoint(*metrics.address);
  if (!configured) return configured.error().with_subject("metrics.address: " + *metrics.address);
  auto own = own_addresses("metrics.address", configured->address, stop);
  if (!own) return own.error();
  metrics::HttpOptions options = http_options(metrics, made.report_);
  options.allowed_hosts.push_back(configured->address);
  options.address = own->front().with_port(configured->port).to_string();
  auto http = metrics::HttpEndpoint::start(registry, std::move(options));
  if (!http) return http.error();
  made.address_ = "http://" + http->address();
  made.http_ = std::move(*http);
  return made;
}

void StatusEndpoint::close() noexcept {
  report_->close();
  http_.reset();
}

}  // namespace remora::detail
