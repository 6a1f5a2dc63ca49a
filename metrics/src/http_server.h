#pragma once

/// cpp-httplib's parsing, routing and compression, on connections of ours.

#include <array>
#include <chrono>
#include <cstddef>
#include <httplib.h>
#include <memory>
#include <mutex>
#include <signal.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/metrics/http_endpoint.h>
#include <remora/mutex.h>

#include "access_check.h"
#include "history.h"
#include "host_check.h"
#include "http_socket.h"

namespace remora::metrics {

/// A connection that ends at a deadline whatever its peer does, and bounds what it reads.
class DeadlineStream final : public httplib::Stream {
 public:
  /// `head`: what has been read of it already.
  DeadlineStream(int fd, const StopSignal& stop, Deadline deadline, std::string head) noexcept
      : fd_{fd},
        stop_{stop},
        deadline_{deadline},
        head_{std::move(head)},
        received_bytes_{head_.size()} {}

  [[nodiscard]] bool is_readable() const override;
  [[nodiscard]] bool is_writable() const override;
  ssize_t read(char* data, std::size_t size) override;
  ssize_t write(const char* data, std::size_t size) override;
  /// Empty: no route needs the address of the peer.
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  [[nodiscard]] socket_t socket() const override { return fd_; }

  /// Bytes that were read before the stream was made.
  [[nodiscard]] std::string_view head() const noexcept { return head_; }
  /// Says that no more follows and waits briefly for the peer's end, so that bytes it sent and
  /// that were not read (a body) do not turn into a reset that overtakes the answer.
  void finish() noexcept;

 private:
  int fd_;
  const StopSignal& stop_;
  Deadline deadline_;
  std::string head_;
  std::size_t head_read_bytes_ = 0;
  std::array<char, 4096> buffer_{};  ///< the parser reads byte by byte
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t received_bytes_;
};

/// httplib::Server's constructor ignores SIGPIPE for the whole process; nothing here needs that.
/// One server is made at a time, so that none restores the disposition that another's constructor
/// has set.
class KeptSigpipe {
 public:
  KeptSigpipe() : one_at_a_time_{mutex()} { ::sigaction(SIGPIPE, nullptr, &before_); }
  /// Keeps a disposition that another thread of the application has set meanwhile.
  /// clang does not follow a lock that the constructor takes and this gives back.
  void restore() noexcept REMORA_NO_THREAD_SAFETY_ANALYSIS {
    struct sigaction now {};
    ::sigaction(SIGPIPE, nullptr, &now);
    if (now.sa_handler == SIG_IGN) ::sigaction(SIGPIPE, &before_, nullptr);
    one_at_a_time_.unlock();
  }

 private:
  static detail::Mutex& mutex() {
    static detail::Mutex one_at_a_time;
    return one_at_a_time;
  }

  detail::MutexLock one_at_a_time_;
  struct sigaction before_ {};
};

/// Routes requests. Its functions may be called by several threads at once.
class HttpServer : private KeptSigpipe, private httplib::Server {
 public:
  /// `history`: null for none.
  HttpServer(std::shared_ptr<Registry> registry, HttpOptions options,
             std::shared_ptr<const History> history);

  /// Reads one request and answers it.
  void serve(DeadlineStream& stream);

 private:
  void add_routes();
  /// Answers what is not to be routed: other methods, foreign names, missing credentials.
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
