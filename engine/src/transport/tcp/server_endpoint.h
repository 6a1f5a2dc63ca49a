#pragma once

/// The server's end of a session over tcp.

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <sys/socket.h>
#include <utility>

#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/fd_set.h"
#include "base/unique_fd.h"
#include "transport/server_endpoint.h"
#include "transport/tcp/io_threads.h"
#include "transport/tcp/lane_registry.h"
#include "transport/tcp/message_reader.h"
#include "transport/tcp/served_session.h"
#include "transport/tcp/socket.h"

namespace remora::transport::tcp {

/// A control channel, its session, and the lanes that belong to it.
class TcpServerEndpoint final : public ServerEndpoint {
 public:
  TcpServerEndpoint(UniqueFd socket, std::string peer, std::shared_ptr<ServedSession> session,
                    FdSet events, std::shared_ptr<TcpLaneRegistry> lane_registry,
                    std::shared_ptr<IoThreads> io)
      : io_{std::move(io)},
        lane_registry_{std::move(lane_registry)},
        socket_{std::move(socket)},
        peer_{std::move(peer)},
        session_{std::move(session)},
        events_{std::move(events)} {}
  ~TcpServerEndpoint() override { shutdown(); }
  TcpServerEndpoint(const TcpServerEndpoint&) = delete;
  TcpServerEndpoint& operator=(const TcpServerEndpoint&) = delete;

  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kTcp; }
  [[nodiscard]] const std::string& peer() const noexcept override { return peer_; }
  [[nodiscard]] const std::string& device() const noexcept override { return device_; }
  [[nodiscard]] int event_fd() const noexcept override { return events_.get(); }

  Result<std::optional<ControlMessage>> receive() noexcept override {
    const auto session = this->session();
    session->take_event();
    auto message = reader_.receive(socket_.get());
    if (!message || message->has_value() || !session->broken()) return message;
    return Error{Code::kConnectionLost, "lane"}.with_reason(Reason::kLaneBroken);
  }
  /// No room means that the client does not read, which ends its session.
  Status send(ControlMessage message) noexcept override {
    return send_message(socket_.get(), message.bytes, Clock::now());
  }
  void flush(Deadline /*deadline*/) noexcept override {}  // the socket keeps the bytes
  void expect_lanes(const LaneTicket& ticket) noexcept override {
    lane_registry_->expect(ticket, session());
  }
  std::size_t take_notices(std::span<Notice> notices) noexcept override {
    const auto session = this->session();
    const auto [count, were_parked] = session->take_notices(notices);
    if (were_parked) io_->of(*session).retry_parked();
    return count;
  }
  Result<Grant> grant(const GrantRequest& request) noexcept override {
    return session()->grant(request);
  }
  [[nodiscard]] std::optional<transport::ServerEndpoint::ServedTotals> served()
      const noexcept override {
    const tcp::ServedCounts all = session()->served();
    return transport::ServerEndpoint::ServedTotals{.operations = all.operations,
                                                   .bytes = all.bytes};
  }
  void shutdown() noexcept override {
    {
      // A session that was taken over ends with the successor.
      const remora::detail::MutexLock lock{mutex_};
      if (!taken_over_) {
        lane_registry_->forget(*session_);
        session_->end();
      }
    }
    ::shutdown(socket_.get(), SHUT_RDWR);
  }
  Status take_over(ServerEndpoint& before) noexcept override {
    auto* const old = dynamic_cast<TcpServerEndpoint*>(&before);
    if (old == nullptr) return Error{Code::kUnsupported, "resume over another transport"};
    // Another thread has shut the old endpoint down, or finds its session taken over.
    const std::scoped_lock lock{mutex_, old->mutex_};
    mutex_.assert_held();
    old->mutex_.assert_held();
    if (auto status = events_.add(old->session_->event_fd()); !status) return status;
    old->taken_over_ = true;
    events_.remove(session_->event_fd());
    session_ = old->session_;
    session_->begin_again();
    return {};
  }

 private:
  std::shared_ptr<IoThreads> io_;  // outlives the lanes
  std::shared_ptr<TcpLaneRegistry> lane_registry_;
  UniqueFd socket_;
  std::string peer_;
  std::string device_;
  [[nodiscard]] std::shared_ptr<ServedSession> session() const noexcept {
    const remora::detail::MutexLock lock{mutex_};
    return session_;
  }

  mutable remora::detail::Mutex mutex_;
  std::shared_ptr<ServedSession> session_ REMORA_GUARDED_BY(mutex_);
  bool taken_over_ REMORA_GUARDED_BY(mutex_) = false;
  FdSet events_;
  MessageReader reader_;
};

}  // namespace remora::transport::tcp
