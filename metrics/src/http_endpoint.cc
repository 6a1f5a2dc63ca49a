#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string_view>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

#include <remora/metrics/http_endpoint.h>
#include <remora/mutex.h>
#include <remora/start_thread.h>

#include "access_check.h"
#include "history.h"
#include "http_server.h"
#include "http_socket.h"
#include "socket_address.h"
#include "waiting_requests.h"

namespace remora::metrics {
namespace {

constexpr std::size_t kConnectionsMaxLimit = 1'024;
constexpr std::chrono::milliseconds kTimeoutMax{3'600'000};
constexpr std::chrono::minutes kHistoryMax{24 * 60};
// How long, and how many, refused connections stay open so that their peers can read the reason.
constexpr std::chrono::milliseconds kRefusedLinger{200};
constexpr std::size_t kRefusedMax = 32;
// How long the acceptor waits for the end of a connection before it refuses a new one.
constexpr std::chrono::milliseconds kRoomPatience{100};
// The pause after accept failed for want of descriptors or memory.
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr int kAcceptMax = 64;
constexpr std::size_t kWaitingMax = 512;
// For a connection that the acceptor must serve itself.
constexpr std::chrono::milliseconds kAcceptorServesMax{500};

constexpr std::string_view kTooMany =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
    "Retry-After: 1\r\nConnection: close\r\nContent-Length: 21\r\n\r\ntoo many connections\n";

// A library does not change the process's signals.
class BlockedSignals {
 public:
  BlockedSignals() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

// The most connections that may wait without a request.
std::size_t waiting_max() noexcept {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return kWaitingMax;
  return std::clamp<std::size_t>(files.rlim_cur / 4, 1, kWaitingMax);
}

std::shared_ptr<History> keep_history(const std::shared_ptr<Registry>& registry,
                                      std::chrono::minutes length) {
  if (length.count() == 0) return nullptr;
  History::Options options;
  options.samples_max = static_cast<std::size_t>(length / options.period);
  return std::make_shared<History>(registry, options);
}

}  // namespace

class HttpEndpoint::Impl {
 public:
  Impl(const std::shared_ptr<Registry>& registry, HttpOptions options, SocketAddress address,
       Descriptor listener, StopSignal stop)
      : connections_max_{options.connections_max},
        request_timeout_{options.request_timeout},
        address_{address},
        history_{keep_history(registry, options.history)},
        server_{registry, std::move(options), history_},
        stop_{std::move(stop)},
        listener_{std::move(listener)} {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    stop_.raise();
    if (acceptor_.joinable()) acceptor_.join();
    for (Connection& connection : connections_) connection.thread.join();
  }

  Status run() {
    const BlockedSignals inherited_by_our_threads;
    if (history_ != nullptr)
      if (const Status started = history_->start(); !started) return started;
    auto acceptor = detail::start_thread("remora-http", [this] { accept_all(); });
    if (!acceptor) return acceptor.error();
    acceptor_ = std::move(*acceptor);
    return ok_status();
  }

  [[nodiscard]] const SocketAddress& address() const noexcept { return address_; }

 private:
  struct Connection {
    std::thread thread;
    bool done = false;  // under ended_mutex_
  };
  struct Refused {
    Descriptor socket;
    Deadline close_at;
  };

  void accept_all() noexcept {
    std::vector<pollfd> polled;
    Deadline accept_from{};
    for (;;) {
      const auto now = std::chrono::steady_clock::now();
      while (!refused_.empty() && refused_.front().close_at <= now) refused_.pop_front();
      try {
        // poll(2) ignores a negative descriptor.
        polled.assign(
            {{stop_.fd(), POLLIN, 0}, {now < accept_from ? -1 : listener_.fd(), POLLIN, 0}});
        waiting_.poll_for(polled);
        if (::poll(polled.data(), polled.size(), wait_ms(now, accept_from)) < 0) continue;  // EINTR
        if (polled[0].revents != 0) return;
        for (Asked& asked : waiting_.read(polled.data() + 2, std::chrono::steady_clock::now()))
          take(std::move(asked));
        if (polled[1].revents != 0 && !accept_some())
          accept_from = std::chrono::steady_clock::now() + kAcceptPause;
      } catch (...) {  // no memory: waiting connections are closed
        if (!waiting_.close_oldest()) accept_from = std::chrono::steady_clock::now() + kAcceptPause;
      }
    }
  }

  [[nodiscard]] int wait_ms(Deadline now, Deadline accept_from) const noexcept {
    Deadline until = now + std::chrono::hours{1};
    if (now < accept_from) until = std::min(until, accept_from);
    if (!refused_.empty()) until = std::min(until, refused_.front().close_at);
    if (const auto next = waiting_.next_deadline()) until = std::min(until, *next);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
    return static_cast<int>(std::max<std::int64_t>(left, 0));
  }

  // Accepts all waiting connections, so that silent ones delay no other; but at most kAcceptMax
  // before arrived requests are handled. False: there is no room for another connection.
  bool accept_some() {
    for (int i = 0; i < kAcceptMax; ++i) {
      Descriptor socket{::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
      if (socket.fd() >= 0) {
        waiting_.add(std::move(socket), std::chrono::steady_clock::now() + request_timeout_);
        continue;
      }
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return errno == EAGAIN || waiting_.close_oldest();  // otherwise out of descriptors
    }
    return true;
  }

  // Removes connections that have ended. If all are in use it waits a moment: a connection that is
  // just being closed is no reason to refuse its client's next one.
  bool has_room() {
    detail::MutexLock lock{ended_mutex_};
    ended_.wait_for(lock, kRoomPatience, [this] {
      ended_mutex_.assert_held();
      return ended_count_ > 0 || connections_.size() < connections_max_;
    });
    ended_count_ = 0;
    connections_.remove_if([this](Connection& connection) {
      ended_mutex_.assert_held();
      if (!connection.done) return false;
      connection.thread.join();
      return true;
    });
    return connections_.size() < connections_max_;
  }

  void take(Asked asked) noexcept {
    if (!has_room()) return refuse(std::move(asked.socket));
    try {
      Connection& connection = connections_.emplace_back();
      // Shared, since it is still needed if the thread cannot be started.
      const auto shared = std::make_shared<Asked>(std::move(asked));
      auto thread = detail::start_thread("remora-http-get", [this, &connection, shared] {
        serve(*shared);
        end(connection);
      });
      if (thread) {
        connection.thread = std::move(*thread);
        return;
      }
      connections_.pop_back();
      serve_on_acceptor(*shared);
    } catch (const std::exception&) {  // no memory: the peer sees its connection close
    }
  }

  // If the system refuses a thread, the acceptor answers, since a health check must not fail just
  // then. Other connections wait meanwhile, so a client has little time.
  void serve_on_acceptor(Asked& asked) noexcept {
    asked.deadline =
        std::min(asked.deadline, std::chrono::steady_clock::now() + kAcceptorServesMax);
    serve(asked);
  }

  void end(Connection& connection) noexcept {
    const detail::MutexLock lock{ended_mutex_};
    connection.done = true;
    ++ended_count_;
    ended_.notify_one();
  }

  void refuse(Descriptor socket) noexcept {
    (void)::send(socket.fd(), kTooMany.data(), kTooMany.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)::shutdown(socket.fd(), SHUT_WR);
    if (refused_.size() >= kRefusedMax) refused_.pop_front();
    try {
      refused_.push_back({std::move(socket), std::chrono::steady_clock::now() + kRefusedLinger});
    } catch (...) {
    }
  }

  void serve(Asked& asked) noexcept {
    try {
      DeadlineStream stream{asked.socket.fd(), stop_, asked.deadline, std::move(asked.head)};
      server_.serve(stream);
    } catch (...) {  // no memory for the answer: the peer sees its connection close
    }
  }

  const std::size_t connections_max_;
  const std::chrono::milliseconds request_timeout_;
  const SocketAddress address_;
  const std::shared_ptr<History> history_;
  HttpServer server_;
  const StopSignal stop_;
  const Descriptor listener_;
  std::list<Connection> connections_;  // used by the acceptor, after it by the destructor
  detail::Mutex ended_mutex_;
  detail::Condition ended_;
  std::size_t ended_count_ REMORA_GUARDED_BY(ended_mutex_) = 0;
  std::deque<Refused> refused_;  // used by the acceptor, as are waiting_
  WaitingRequests waiting_{waiting_max()};
  std::thread acceptor_;
};

HttpEndpoint::HttpEndpoint(std::unique_ptr<Impl> impl) noexcept : impl_{std::move(impl)} {}
HttpEndpoint::~HttpEndpoint() = default;
HttpEndpoint::HttpEndpoint(HttpEndpoint&&) noexcept = default;
HttpEndpoint& HttpEndpoint::operator=(HttpEndpoint&&) noexcept = default;

Result<HttpEndpoint> HttpEndpoint::start(std::shared_ptr<Registry> registry, HttpOptions options) {
  const auto invalid = [&](Operation what) {
    return Error{Code::kInvalidArgument, what}.with_subject(options.address);
  };
  if (registry == nullptr) return invalid("metrics endpoint without a registry");
  if (options.connections_max == 0 || options.connections_max > kConnectionsMaxLimit)
    return invalid("connections_max of a metrics endpoint")
        .with_limit(options.connections_max, kConnectionsMaxLimit);
  if (options.request_timeout <= std::chrono::milliseconds{0} ||
      options.request_timeout > kTimeoutMax)
    return invalid("request_timeout of a metrics endpoint");
  if (options.history.count() < 0 || options.history > kHistoryMax)
    return invalid("history of a metrics endpoint")
        .with_limit(static_cast<std::uint64_t>(std::max<std::int64_t>(0, options.history.count())),
                    static_cast<std::uint64_t>(kHistoryMax.count()));
  if (const Status access = check_access(options.access); !access)
    return Error{access.error()}.with_subject(options.address);
  Result<SocketAddress> address = parse_address(options.address);
  if (!address) return address.error();
  Result<StopSignal> stop = StopSignal::create();
  if (!stop) return stop.error();
  Result<Descriptor> listener = listen_on(*address);
  if (!listener) return listener.error();
  auto impl = std::make_unique<Impl>(registry, std::move(options), *address, *std::move(listener),
                                     *std::move(stop));
  if (const Status running = impl->run(); !running) return running.error();
  return HttpEndpoint{std::move(impl)};
}

std::uint16_t HttpEndpoint::port() const noexcept {
  return impl_ == nullptr ? std::uint16_t{0} : impl_->address().port();
}

std::string HttpEndpoint::address() const {
  return impl_ == nullptr ? std::string{} : impl_->address().text();
}

}  // namespace remora::metrics
