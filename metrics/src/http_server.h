#pragma once

/// Parsing, routing and compression by cpp-httplib, on the connections of this library.

#include <chrono>
#include <cstddef>
#include <httplib.h>
#include <memory>
#include <string>
#include <vector>

#include <remora/metrics/http_endpoint.h>

#include "access_check.h"
#include "deadline_stream.h"
#include "history.h"
#include "host_check.h"
#include "kept_sigpipe.h"

namespace remora::metrics {

/// Routes requests. Several threads may call its functions at once.
class HttpServer : private KeptSigpipe, private httplib::Server {
 public:
  /// `history`: null for none.
  HttpServer(std::shared_ptr<Registry> registry, HttpOptions options,
             std::shared_ptr<const History> history);

  /// Reads one request and answers it.
  void serve(DeadlineStream& stream);

 private:
  void add_routes();
  /// Answers requests that are not routed: other methods, foreign names, missing credentials.
  [[nodiscard]] bool refuse(const httplib::Request& request, httplib::Response& response) const;
  static void refuse_host(const std::string& host, const HostCheck& hosts,
                          httplib::Response& response);
  void serve_metrics(httplib::Response& response) const;
  void serve_health(httplib::Response& response) const;
  void serve_readiness(httplib::Response& response) const;
  void serve_status(const httplib::Request& request, httplib::Response& response) const;
  void serve_history(const httplib::Request& request, httplib::Response& response) const;
  [[nodiscard]] std::vector<std::string> reasons_not_ready() const;

  const std::shared_ptr<Registry> registry_;
  const HttpOptions options_;
  const AccessCheck access_;
  const HostCheck hosts_;
  const std::shared_ptr<const History> history_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace remora::metrics
