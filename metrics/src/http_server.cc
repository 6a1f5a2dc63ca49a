#include "http_server.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

namespace remora::metrics {
namespace {

constexpr const char* kTextFormat = "text/plain; version=0.0.4; charset=utf-8";
constexpr const char* kPlainText = "text/plain; charset=utf-8";

}  // namespace

bool DeadlineStream::is_readable() const {
  return begin_ < end_ || wait_for(fd_, POLLIN, stop_, deadline_) == Wait::kReady;
}

bool DeadlineStream::is_writable() const {
  return wait_for(fd_, POLLOUT, stop_, deadline_) == Wait::kReady;
}

ssize_t DeadlineStream::read(char* data, std::size_t size) {
  while (begin_ == end_) {
    if (received_bytes_ >= kRequestBytesMax) return -1;
    if (wait_for(fd_, POLLIN, stop_, deadline_) != Wait::kReady) return -1;
    const ssize_t got = ::recv(fd_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return got;
    begin_ = 0;
    end_ = static_cast<std::size_t>(got);
    received_bytes_ += end_;
  }
  const std::size_t length = std::min(size, end_ - begin_);
  std::copy_n(buffer_.data() + begin_, length, data);
  begin_ += length;
  return static_cast<ssize_t>(length);
}

ssize_t DeadlineStream::write(const char* data, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    if (wait_for(fd_, POLLOUT, stop_, deadline_) != Wait::kReady) return -1;
    const ssize_t sent = ::send(fd_, data + done, size - done, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return -1;
    if (sent > 0) done += static_cast<std::size_t>(sent);
  }
  return static_cast<ssize_t>(size);
}

void DeadlineStream::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

void DeadlineStream::get_local_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

void DeadlineStream::finish() noexcept {
  constexpr std::chrono::milliseconds kPatience{300};
  constexpr int kReadsMax = 256;
  if (::shutdown(fd_, SHUT_WR) != 0) return;
  const Deadline until = std::min(deadline_, std::chrono::steady_clock::now() + kPatience);
  for (int i = 0; i < kReadsMax; ++i) {
    if (wait_for(fd_, POLLIN, stop_, until) != Wait::kReady) return;
    const ssize_t got = ::recv(fd_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return;
  }
}

HttpServer::HttpServer(std::shared_ptr<Registry> registry, std::function<Health()> health)
    : registry_{std::move(registry)}, health_{std::move(health)} {
  restore();
  using httplib::Request;
  using httplib::Response;
  Get("/metrics", [this](const Request&, Response& response) { serve_metrics(response); });
  Get("/healthz", [this](const Request&, Response& response) { serve_health(response); });
  set_pre_routing_handler([](const Request& request, Response& response) {
    if (request.method == "GET" || request.method == "HEAD") return HandlerResponse::Unhandled;
    response.status = 405;
    response.set_header("Allow", "GET, HEAD");
    response.set_content("only GET and HEAD are served here\n", kPlainText);
    return HandlerResponse::Handled;
  });
  set_error_handler(Handler{[](const Request&, Response& response) {
    if (!response.body.empty()) return;
    response.set_content(response.status == 404 ? "not found: try /metrics or /healthz\n"
                                                : "the request could not be served\n",
                         kPlainText);
  }});
}

void HttpServer::serve(DeadlineStream& stream) {
  bool closed = false;
  // Ranges are dropped: many small ones of one page would be answered many times over.
  const bool answered = process_request(stream, /*close_connection=*/true, closed,
                                        [](httplib::Request& request) { request.ranges.clear(); });
  if (answered) stream.finish();
}

void HttpServer::serve_metrics(httplib::Response& response) const {
  response.set_content(registry_->text(), kTextFormat);
}

void HttpServer::serve_health(httplib::Response& response) const {
  Health health;
  try {
    if (health_) health = health_();
  } catch (const std::exception& failure) {
    health = {false, std::string{"the health check failed: "} + failure.what()};
  } catch (...) {
    health = {false, "the health check failed"};
  }
  response.status = health.ok ? 200 : 503;
  response.set_header("Cache-Control", "no-store");
  response.set_content(health.text + "\n", kPlainText);
}

}  // namespace remora::metrics
