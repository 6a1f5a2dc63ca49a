#include "http_server.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "accept_encoding.h"
#include "page.h"
#include "waiting_requests.h"

namespace remora::metrics {
namespace {

constexpr const char* kTextFormat = "text/plain; version=0.0.4; charset=utf-8";
constexpr const char* kPlainText = "text/plain; charset=utf-8";
constexpr const char* kJson = "application/json";
// The chart library sets style attributes; the page has no other inline content, and nothing from
// elsewhere.
constexpr const char* kPagePolicy =
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

// For clients of another protocol, which may have taken the wrong port.
constexpr std::string_view kNotHttp =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    "Connection: close\r\nContent-Length: 103\r\n\r\n"
    "this port speaks HTTP: it is the metrics endpoint; clients of remora-server connect to its "
    "listen.port\n";

}  // namespace

HttpServer::HttpServer(std::shared_ptr<Registry> registry, HttpOptions options,
                       std::shared_ptr<const History> history)
    : registry_{std::move(registry)},
      options_{std::move(options)},
      access_{options_.access},
      hosts_{options_.allowed_hosts},
      history_{std::move(history)} {
  restore();
  set_default_headers({{"X-Content-Type-Options", "nosniff"}});
  set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    return refuse(request, response) ? HandlerResponse::Handled : HandlerResponse::Unhandled;
  });
  set_error_handler(Handler{[](const httplib::Request&, httplib::Response& response) {
    if (!response.body.empty()) return;
    response.set_content(
        response.status == 404
            ? "not found: try /, /metrics, /status, /history, /healthz or /readyz\n"
            : "the request could not be served\n",
        kPlainText);
  }});
  add_routes();
}

void HttpServer::add_routes() {
  using httplib::Request;
  using httplib::Response;
  Get("/metrics", [this](const Request&, Response& response) { serve_metrics(response); });
  Get("/healthz", [this](const Request&, Response& response) { serve_health(response); });
  Get("/readyz", [this](const Request&, Response& response) { serve_readiness(response); });
  Get("/status",
      [this](const Request& request, Response& response) { serve_status(request, response); });
  Get("/history",
      [this](const Request& request, Response& response) { serve_history(request, response); });
  for (const PageFile& file : page_files())
    Get(std::string{file.path}, [file](const Request&, Response& response) {
      response.set_header("Cache-Control", "no-cache");
      response.set_header("Content-Security-Policy", kPagePolicy);
      response.set_content(file.bytes.data(), file.bytes.size(), file.content_type.data());
    });
}

bool HttpServer::refuse(const httplib::Request& request, httplib::Response& response) const {
  if (request.method != "GET" && request.method != "HEAD") {
    response.status = 405;
    response.set_header("Allow", "GET, HEAD");
    response.set_content("only GET and HEAD are served here\n", kPlainText);
    return true;
  }
  // These tell only the state of the process, and orchestrators use names of their own.
  const bool probe = request.path == "/healthz" || request.path == "/readyz";
  if (const std::string host = request.get_header_value("Host"); !probe && !hosts_.allows(host)) {
    refuse_host(host, hosts_, response);
    return true;
  }
  static constexpr std::array<std::string_view, 3> kProtected{"/metrics", "/status", "/history"};
  if (std::find(kProtected.begin(), kProtected.end(), request.path) == kProtected.end() ||
      access_.allows(request.get_header_value("Authorization")))
    return false;
  response.status = 401;
  for (const std::string& challenge : access_.challenges())
    response.set_header("WWW-Authenticate", challenge);
  response.set_content(
      "credentials are needed: see metrics.token and metrics.user in the "
      "configuration of this process\n",
      kPlainText);
  return true;
}

void HttpServer::refuse_host(const std::string& host, const HostCheck& hosts,
                             httplib::Response& response) {
  std::string shown = host.substr(0, 255);
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  response.status = 421;
  response.set_content("this endpoint was asked for by the name '" + shown +
                           "', which is none of its own: ask by an address, as localhost or as '" +
                           hosts.machine() +
                           "', or add the name to metrics.allowed_hosts in the configuration of "
                           "this process\n",
                       kPlainText);
}

void HttpServer::serve(DeadlineStream& stream) {
  if (!begins_as_http(stream.head())) {
    if (stream.write(kNotHttp.data(), kNotHttp.size()) > 0) stream.finish();
    return;
  }
  bool closed = false;
  const bool answered =
      process_request(stream, /*close_connection=*/true, closed, [](httplib::Request& request) {
        // Many small ranges of one page would be answered many times.
        request.ranges.clear();
        // cpp-httplib would choose brotli at its highest quality, which takes a processor seconds
        // for a page.
        std::string accepted;
        for (std::size_t i = 0; i < request.get_header_value_count("Accept-Encoding"); ++i)
          accepted += request.get_header_value("Accept-Encoding", i) + ",";
        const bool gzip = accepts_gzip(accepted);
        request.headers.erase("Accept-Encoding");
        if (gzip) request.set_header("Accept-Encoding", "gzip");
      });
  if (answered) stream.finish();
}

void HttpServer::serve_metrics(httplib::Response& response) const {
  response.set_content(registry_->text(), kTextFormat);
}

void HttpServer::serve_health(httplib::Response& response) const {
  Health health;
  try {
    if (options_.health) health = options_.health();
  } catch (const std::exception& failure) {
    health = {false, std::string{"the health check failed: "} + failure.what()};
  } catch (...) {
    health = {false, "the health check failed"};
  }
  response.status = health.ok ? 200 : 503;
  response.set_header("Cache-Control", "no-store");
  response.set_content(health.text + "\n", kPlainText);
}

std::vector<std::string> HttpServer::reasons_not_ready() const {
  try {
    if (options_.unready) return options_.unready();
    return {};
  } catch (const std::exception& failure) {
    return {std::string{"the readiness check failed: "} + failure.what()};
  } catch (...) {
    return {"the readiness check failed"};
  }
}

void HttpServer::serve_readiness(httplib::Response& response) const {
  const std::vector<std::string> reasons = reasons_not_ready();
  std::string text = reasons.empty() ? "ready\n" : "";
  for (const std::string& reason : reasons) text += reason + "\n";
  response.status = reasons.empty() ? 200 : 503;
  response.set_header("Cache-Control", "no-store");
  response.set_content(text, kPlainText);
}

void HttpServer::serve_status(const httplib::Request& request, httplib::Response& response) const {
  response.set_header("Cache-Control", "no-store");
  StatusQuery query{.sessions_after = request.get_param_value("sessions_after"),
                    .regions_after = request.get_param_value("regions_after")};
  if (const std::string limit = request.get_param_value("limit"); !limit.empty()) {
    const char* const end = limit.data() + limit.size();
    const auto [stopped, fault] = std::from_chars(limit.data(), end, query.limit);
    if (fault != std::errc{} || stopped != end || query.limit == 0 ||
        query.limit > StatusQuery::kLimitMax) {
      response.status = 400;
      response.set_content("limit must be a number from 1 to 10000\n", kPlainText);
      return;
    }
  }
  try {
    nlohmann::json status = {{"kind", "process"}};
    if (options_.status_page)
      status = nlohmann::json::parse(options_.status_page(query));
    else if (options_.status)
      status = nlohmann::json::parse(options_.status());
    const std::vector<std::string> reasons = reasons_not_ready();
    status["ready"] = reasons.empty();
    status["reasons"] = reasons;
    status["uptime_seconds"] =
        std::chrono::duration<double>{std::chrono::steady_clock::now() - began_}.count();
    response.set_content(
        status.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", kJson);
  } catch (const std::exception& failure) {
    response.status = 500;
    response.set_content(std::string{"the status could not be made: "} + failure.what() + "\n",
                         kPlainText);
  }
}

void HttpServer::serve_history(const httplib::Request& request, httplib::Response& response) const {
  response.set_header("Cache-Control", "no-store");
  if (history_ == nullptr) {
    response.status = 404;
    response.set_content("no history is kept by this process\n", kPlainText);
    return;
  }
  std::uint64_t since = 0;
  const std::string wanted = request.get_param_value("since");
  const char* const end = wanted.data() + wanted.size();
  const auto [stopped, fault] = std::from_chars(wanted.data(), end, since);
  if (!wanted.empty() && (fault != std::errc{} || stopped != end)) {
    response.status = 400;
    response.set_content("since must be the number that an earlier answer had as `next`\n",
                         kPlainText);
    return;
  }
  response.set_content(history_->json(since), kJson);
}

}  // namespace remora::metrics
