/// The listener of the tcp transport: sockets, and connections whose introduction has not arrived.
/// Control channels become endpoints, lanes go to the threads that serve them.

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <memory>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <utility>
#include <vector>

#include <remora/verbs/address.h>

#include "base/fd_set.h"
#include "base/log.h"
#include "base/log_rate_limiter.h"
#include "transport/listen.h"
#include "transport/tcp/io_threads.h"
#include "transport/tcp/lane_registry.h"
#include "transport/tcp/served_session.h"
#include "transport/tcp/server_endpoint.h"
#include "transport/tcp/server_lane.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/wire.h"

namespace remora::transport {

namespace tcp {
namespace {

/// The most pending connections; beyond it the oldest are closed.
constexpr std::size_t kMaxPending = 256;
/// The most connections that are accepted at once, so that earlier ones are served too.
constexpr std::size_t kMaxAccept = 64;
/// Room in the socket for every answer that a client may wait for.
constexpr int kControlSendBytes =
    static_cast<int>((kMaxControlRequests + 2) * (kMaxControlMessageBytes + 64));

/// A connection whose introduction has not arrived whole.
struct PendingConnection {
  UniqueFd socket;
  verbs::Address peer;
  Deadline until;
  std::array<std::byte, Introduction::kWireBytes> bytes{};
  std::size_t got = 0;
  bool answered = false;  ///< answered in HTTP: closed when the client has read that
};

/// The answer to an HTTP client: a browser, or a program that takes this port for metrics.address.
constexpr std::string_view kHttpAnswer =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    "Connection: close\r\nContent-Length: 108\r\n\r\n"
    "this is the port of remora-server for its clients, which is not HTTP: "
    "metrics are served at metrics.address\n";
static_assert(kHttpAnswer.size() - kHttpAnswer.find("\r\n\r\n") - 4 == 108);

class TcpListener final : public Listener {
 public:
  TcpListener(std::vector<UniqueFd> sockets, std::vector<verbs::Address> addresses, FdSet events,
              UniqueFd timer, std::chrono::nanoseconds handshake_timeout, ServedMetrics metrics,
              std::shared_ptr<IoThreads> io)
      : sockets_{std::move(sockets)},
        addresses_{std::move(addresses)},
        events_{std::move(events)},
        timer_{std::move(timer)},
        handshake_timeout_{handshake_timeout},
        metrics_{std::move(metrics)},
        io_{std::move(io)} {}

  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kTcp; }
  [[nodiscard]] int event_fd() const noexcept override { return events_.get(); }
  [[nodiscard]] std::uint16_t port() const noexcept override { return addresses_.front().port(); }
  [[nodiscard]] std::string description() const override {
    std::string text = "tcp";
    for (const verbs::Address& address : addresses_) text += " " + address.to_string();
    return text;
  }

  Result<std::vector<std::unique_ptr<ServerEndpoint>>> accept() noexcept override {
    std::vector<std::unique_ptr<ServerEndpoint>> arrived;
    std::uint64_t expirations = 0;
    (void)!::read(timer_.get(), &expirations, sizeof expirations);
    Status status;
    for (const UniqueFd& socket : sockets_)
      if (status) status = accept_pending(socket.get());
    const Clock::time_point now = Clock::now();
    std::erase_if(pending_, [&](PendingConnection& pending) {
      return read_introduction(pending, now, arrived);
    });
    set_timer();
    if (!status && arrived.empty()) return status.error();
    return arrived;
  }

  void set_handshake_timeout(std::chrono::nanoseconds patience) noexcept override {
    handshake_timeout_ = patience;
  }

 private:
  Status accept_pending(int listening) noexcept {
    for (std::size_t i = 0; i < kMaxAccept; ++i) {
      sockaddr_storage peer{};
      socklen_t length = sizeof peer;
      UniqueFd socket{::accept4(listening, reinterpret_cast<sockaddr*>(&peer), &length,
                                SOCK_CLOEXEC | SOCK_NONBLOCK)};
      if (!socket) {
        if (errno == EAGAIN) return {};
        // The error concerns that one connection, not the listener. Source: accept(2).
        if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) continue;
        return Error{Code::kSystem, "accept"}.with_errno(errno);
      }
      const verbs::Address address = verbs::Address::from(reinterpret_cast<sockaddr*>(&peer));
      if (!prepare_socket(socket.get()) || !events_.add(socket.get())) continue;
      if (pending_.size() >= kMaxPending) {
        reject(pending_.front(), "too many at once");
        pending_.pop_front();
      }
      pending_.push_back({.socket = std::move(socket),
                          .peer = address,
                          .until = Clock::now() + handshake_timeout_});
    }
    return {};
  }

  /// Reads more bytes. True: the connection is not pending any more: a session has it, or it is
  /// closed.
  bool read_introduction(PendingConnection& pending, Clock::time_point now,
                         std::vector<std::unique_ptr<ServerEndpoint>>& arrived) {
    if (pending.answered) return drain_answered(pending, now);
    const ssize_t got = ::recv(pending.socket.get(), pending.bytes.data() + pending.got,
                               pending.bytes.size() - pending.got, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (now < pending.until) return false;
      return reject(pending, "silent");
    }
    if (got <= 0) return reject(pending, "gone");
    pending.got += static_cast<std::size_t>(got);
    const auto said = std::span{pending.bytes}.first(pending.got);
    if (said.size() >= kMagicBytes && !begins_as_ours(said)) {
      reject(pending,
             is_http_request(said) ? "HTTP, which is not the protocol here" : "not the protocol");
      return !is_http_request(said) || !answer_http(pending, now);
    }
    if (pending.got < pending.bytes.size()) return false;
    const auto introduction = Introduction::from_wire(pending.bytes);
    if (!introduction) return reject(pending, "not the protocol");
    const Status admitted = introduction->purpose == Purpose::kLane
                                ? admit_lane(pending, *introduction)
                                : admit_control(pending, arrived);
    if (!admitted && refused_lines_.allows(now))
      log::warn({"connection.refused", "peer reason"}, "tcp: {}: {}{}", pending.peer.to_string(),
                admitted.error().message(), refused_lines_.take_left_out());
    if (!admitted) metrics_.registry->recorder().add(metrics_.rejected_connections);
    return true;
  }

  /// False: the socket did not take the whole answer.
  static bool answer_http(PendingConnection& pending, Clock::time_point now) noexcept {
    constexpr std::chrono::seconds kReadingTime{1};
    pending.answered = true;
    pending.until = std::min<Deadline>(pending.until, now + kReadingTime);
    const int socket = pending.socket.get();
    const auto text = std::as_bytes(std::span{kHttpAnswer.data(), kHttpAnswer.size()});
    return send_all(socket, text, now) && ::shutdown(socket, SHUT_WR) == 0;
  }

  /// True when a client that was answered has disconnected, or its time is over. Reads the bytes
  /// that it has sent: closing with unread bytes would reset the connection, and lose the answer.
  static bool drain_answered(PendingConnection& pending, Clock::time_point now) noexcept {
    std::array<std::byte, 4096> unread;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const ssize_t got = ::recv(pending.socket.get(), unread.data(), unread.size(), MSG_DONTWAIT);
    const bool gone = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    return gone || now >= pending.until;
  }

  bool reject(const PendingConnection& pending, std::string_view why) {
    if (hung_up_lines_.allows(Clock::now()))
      log::info({"connection.hung_up", "peer reason"}, "tcp: {}: hung up on: {}{}",
                pending.peer.to_string(), why, hung_up_lines_.take_left_out());
    metrics_.registry->recorder().add(metrics_.rejected_connections);
    return true;
  }

  Status admit_control(PendingConnection& pending,
                       std::vector<std::unique_ptr<ServerEndpoint>>& arrived) {
    // Best effort: the buffer that the system gives is enough for a client that reads.
    ::setsockopt(pending.socket.get(), SOL_SOCKET, SO_SNDBUF, &kControlSendBytes,
                 sizeof kControlSendBytes);
    if (auto status = send_all(pending.socket.get(), Welcome{}.to_wire(), Clock::now()); !status)
      return status;
    auto session = ServedSession::create(io_->take_seat());
    if (!session) return session.error();
    auto events = FdSet::create();
    if (!events) return events.error();
    for (const int fd : {pending.socket.get(), (*session)->event_fd()})
      if (auto status = events->add(fd); !status) return status;
    stop_watching(pending);
    arrived.push_back(std::make_unique<TcpServerEndpoint>(
        std::move(pending.socket), pending.peer.to_string(), std::move(*session),
        std::move(*events), lane_registry_, io_));
    return {};
  }

  Status admit_lane(PendingConnection& pending, const Introduction& introduction) {
    const auto session = lane_registry_->find(introduction.ticket);
    if (session == nullptr) return Error{Code::kProtocol, "lane without a session"};
    const int fd = pending.socket.get();
    stop_watching(pending);
    auto lane =
        std::make_shared<ServerLane>(std::move(pending.socket), session, introduction.payload_crc);
    if (auto status = session->add_lane(lane); !status) return status;
    const Welcome welcome{.purpose = Purpose::kLane, .payload_crc = introduction.payload_crc};
    Status status = send_all(fd, welcome.to_wire(), Clock::now());
    if (status) status = io_->of(*session).add(lane);
    if (!status) session->lane_ended(*lane);
    return status;
  }

  /// Removes the descriptor, which another set of events will watch.
  void stop_watching(const PendingConnection& pending) noexcept {
    events_.remove(pending.socket.get());
  }

  /// Sets the timer by which a silent connection is noticed.
  void set_timer() noexcept {
    itimerspec when{};
    const auto first = std::min_element(
        pending_.begin(), pending_.end(),
        [](const PendingConnection& a, const PendingConnection& b) { return a.until < b.until; });
    if (first != pending_.end()) {
      const auto left = std::max<std::chrono::nanoseconds>(first->until - Clock::now(),
                                                           std::chrono::milliseconds{1});
      when.it_value = {.tv_sec = static_cast<time_t>(left.count() / 1'000'000'000),
                       .tv_nsec = static_cast<long>(left.count() % 1'000'000'000)};  // NOLINT
    }
    ::timerfd_settime(timer_.get(), 0, &when, nullptr);
  }

  std::vector<UniqueFd> sockets_;
  std::vector<verbs::Address> addresses_;
  FdSet events_;
  UniqueFd timer_;
  std::chrono::nanoseconds handshake_timeout_;
  ServedMetrics metrics_;
  std::shared_ptr<IoThreads> io_;
  std::shared_ptr<TcpLaneRegistry> lane_registry_ = std::make_shared<TcpLaneRegistry>();
  std::deque<PendingConnection> pending_;
  log::LogRateLimiter refused_lines_{1};
  log::LogRateLimiter hung_up_lines_{1};
};

Error listen_error(Operation operation, int system_errno, const verbs::Address& address) {
  const Code code = system_errno == EADDRINUSE      ? Code::kAddressInUse
                    : system_errno == EADDRNOTAVAIL ? Code::kUnreachable
                    : system_errno == EACCES        ? Code::kPermissionDenied
                                                    : Code::kSystem;
  return Error{code, operation}.with_subject(address.to_string()).with_errno(system_errno);
}

Result<UniqueFd> listen_on(const verbs::Address& address) {
  UniqueFd socket{::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!socket)
    return Error{errno == EAFNOSUPPORT ? Code::kUnsupported : Code::kSystem, "socket"}
        .with_subject(address.to_string())
        .with_errno(errno);
  constexpr int kOn = 1;
  const int v6_only = address.is_any() ? 0 : 1;
  // Connections of a server that has just ended do not prevent its successor from using the port; a
  // listening server does.
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &kOn, sizeof kOn);
  if (address.family() == AF_INET6)
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof v6_only);
  if (::bind(socket.get(), address.raw(), address.raw_length_bytes()) != 0)
    return listen_error("bind", errno, address);
  if (::listen(socket.get(), SOMAXCONN) != 0) return listen_error("listen", errno, address);
  return socket;
}

std::uint16_t bound_port(int socket) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) != 0) return 0;
  return verbs::Address::from(reinterpret_cast<sockaddr*>(&own)).port();
}

}  // namespace
}  // namespace tcp

Result<std::unique_ptr<Listener>> listen_tcp(const config::ServerConfig& config,
                                             const ListenAddress& address, std::uint16_t port,
                                             const std::shared_ptr<metrics::Registry>& registry) {
  auto events = FdSet::create();
  if (!events) return events.error();
  UniqueFd timer{::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)};
  if (!timer) return Error{Code::kSystem, "timerfd_create"}.with_errno(errno);
  if (auto status = events->add(timer.get()); !status) return status.error();
  std::vector<UniqueFd> sockets;
  std::vector<verbs::Address> addresses;
  for (const verbs::Address& each : address.addresses) {
    auto socket = tcp::listen_on(each.with_port(port));
    if (!socket) return socket.error();
    port = tcp::bound_port(socket->get());
    if (auto status = events->add(socket->get()); !status) return status.error();
    sockets.push_back(std::move(*socket));
    addresses.push_back(each.with_port(port));
  }
  auto metrics = tcp::ServedMetrics::create(registry);
  if (!metrics) return metrics.error();
  auto io =
      tcp::IoThreads::start(*metrics, config.transports.tcp_spin, config.transports.tcp_threads);
  if (!io) return io.error();
  return std::unique_ptr<Listener>{std::make_unique<tcp::TcpListener>(
      std::move(sockets), std::move(addresses), std::move(*events), std::move(timer),
      config.limits.handshake_timeout, std::move(*metrics), std::move(*io))};
}

}  // namespace remora::transport
