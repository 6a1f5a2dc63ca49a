#pragma once

/// Clients of a server within one process, without a network: the test writes their requests. What
/// a session has on a device is of an endpoint that the test makes.

#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <sys/eventfd.h>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "protocol/messages.h"
#include "support/eventually.h"
#include "transport/device_failure.h"
#include "transport/device_watch.h"
#include "transport/listener.h"
#include "transport/server_endpoint.h"

namespace remora::test {

inline UniqueFd make_event() { return UniqueFd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}; }
inline void clear_event(const UniqueFd& event) {
  eventfd_t value = 0;
  (void)::eventfd_read(event.get(), &value);
}

/// The control channel of one client. Thread-safe.
class LocalChannel {
 public:
  using Bytes = std::vector<std::byte>;

  // The client's side.
  void say(Bytes message) {
    const std::lock_guard lock{mutex_};
    to_server_.push_back(std::move(message));
    signal_event(event_.get());
  }
  void hang_up() {
    const std::lock_guard lock{mutex_};
    hung_up_ = true;
    signal_event(event_.get());
  }
  /// What the server has sent since the last call.
  [[nodiscard]] std::deque<Bytes> hear() {
    const std::lock_guard lock{mutex_};
    return std::exchange(to_client_, {});
  }
  /// Whether the server has ended the connection.
  [[nodiscard]] bool ended() const {
    const std::lock_guard lock{mutex_};
    return ended_;
  }

  // The server's side.
  [[nodiscard]] int event_fd() const noexcept { return event_.get(); }
  [[nodiscard]] Result<std::optional<transport::ControlMessage>> receive() {
    const std::lock_guard lock{mutex_};
    if (to_server_.empty()) {
      if (hung_up_ || ended_) return gone();
      clear_event(event_);
      return std::optional<transport::ControlMessage>{};
    }
    transport::ControlMessage first{.bytes = std::move(to_server_.front()), .descriptors = {}};
    to_server_.pop_front();
    return std::optional{std::move(first)};
  }
  Status send(Bytes message) {
    const std::lock_guard lock{mutex_};
    if (hung_up_ || ended_) return gone();
    to_client_.push_back(std::move(message));
    return {};
  }
  void end() {
    const std::lock_guard lock{mutex_};
    ended_ = true;
  }

 private:
  static Error gone() { return Error{Code::kConnectionLost, "local channel"}; }

  mutable std::mutex mutex_;
  std::deque<Bytes> to_server_;
  std::deque<Bytes> to_client_;
  bool hung_up_ = false;
  bool ended_ = false;
  const UniqueFd event_ = make_event();
};

/// The server's end of such a channel; all the rest is that of `device`.
class LocalEndpoint final : public transport::ServerEndpoint {
 public:
  LocalEndpoint(std::shared_ptr<LocalChannel> channel,
                std::unique_ptr<transport::ServerEndpoint> device)
      : channel_{std::move(channel)}, device_{std::move(device)} {}

  [[nodiscard]] TransportKind kind() const noexcept override { return device_->kind(); }
  [[nodiscard]] const std::string& peer() const noexcept override { return device_->peer(); }
  [[nodiscard]] const std::string& device() const noexcept override { return device_->device(); }
  [[nodiscard]] int event_fd() const noexcept override { return channel_->event_fd(); }
  Result<std::optional<transport::ControlMessage>> receive() noexcept override {
    return channel_->receive();
  }
  Status send(transport::ControlMessage message) noexcept override {
    return channel_->send(std::move(message.bytes));
  }
  void flush(Deadline /*deadline*/) noexcept override {}
  transport::LaneKeyRenewal* use_lane_keys() noexcept override { return device_->use_lane_keys(); }
  [[nodiscard]] transport::DeviceSession* device_session() noexcept override {
    return device_->device_session();
  }
  void expect_lanes(const transport::LaneTicket& ticket) noexcept override {
    device_->expect_lanes(ticket);
  }
  [[nodiscard]] bool registers(const transport::GrantRequest& request) noexcept override {
    return device_->registers(request);
  }
  Result<transport::Grant> grant(const transport::GrantRequest& request) noexcept override {
    return device_->grant(request);
  }
  void shutdown() noexcept override {
    device_->shutdown();
    channel_->end();
  }
  [[nodiscard]] transport::DelayedDestruction* delayed_destruction() noexcept override {
    return device_->delayed_destruction();
  }
  Status take_over(ServerEndpoint& before) noexcept override {
    return device_->take_over(*dynamic_cast<LocalEndpoint&>(before).device_);
  }

 private:
  const std::shared_ptr<LocalChannel> channel_;
  const std::unique_ptr<transport::ServerEndpoint> device_;
};

/// Gives the server the clients of the test. Thread-safe.
class LocalListener final : public transport::Listener, private transport::DeviceWatch {
 public:
  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kRdma; }
  [[nodiscard]] int event_fd() const noexcept override { return event_.get(); }
  Result<std::vector<std::unique_ptr<transport::ServerEndpoint>>> accept() noexcept override {
    const std::lock_guard lock{mutex_};
    clear_event(event_);
    return std::exchange(arrived_, {});
  }
  [[nodiscard]] std::string description() const override { return "local"; }
  [[nodiscard]] std::uint16_t port() const noexcept override { return 1; }
  [[nodiscard]] transport::DeviceWatch* device_watch() noexcept override { return this; }
  [[nodiscard]] std::function<void()> tick(const std::stop_token& stop) noexcept override {
    const std::lock_guard lock{mutex_};
    if (!job_) return {};
    return [job = std::exchange(job_, {}), stop] { job(stop); };
  }
  [[nodiscard]] std::vector<transport::DeviceFailure> take_failures() noexcept override {
    const std::lock_guard lock{mutex_};
    return std::exchange(failures_, {});
  }

  // For the test.
  void arrive(std::unique_ptr<transport::ServerEndpoint> endpoint) {
    const std::lock_guard lock{mutex_};
    arrived_.push_back(std::move(endpoint));
    signal_event(event_.get());
  }
  void fail(transport::DeviceFailure failure) {
    const std::lock_guard lock{mutex_};
    failures_.push_back(std::move(failure));
  }
  /// The result of the next tick().
  void set_job(std::function<void(const std::stop_token& stop)> job) {
    const std::lock_guard lock{mutex_};
    job_ = std::move(job);
  }

 private:
  const UniqueFd event_ = make_event();
  std::mutex mutex_;
  std::vector<std::unique_ptr<transport::ServerEndpoint>> arrived_;
  std::vector<transport::DeviceFailure> failures_;
  std::function<void(const std::stop_token& stop)> job_;
};

/// A client. Used by one thread.
class LocalClient {
 public:
  explicit LocalClient(std::shared_ptr<LocalChannel> channel) : channel_{std::move(channel)} {}

  /// Sends a request; returns its id.
  std::uint64_t ask(control::Request request) {
    control::Envelope envelope;
    envelope.set_magic(control::kMagic);
    envelope.set_id(++last_id_);
    *envelope.mutable_request() = std::move(request);
    channel_->say(control::encode(envelope).value());
    return last_id_;
  }
  [[nodiscard]] bool has_answer(std::uint64_t id) {
    hear();
    return replies_.contains(id);
  }
  /// Waits for it.
  control::Reply answer(std::uint64_t id) {
    EXPECT_TRUE(eventually([&] { return has_answer(id); })) << "no answer";
    return replies_[id];
  }
  control::Reply call(control::Request request) { return answer(ask(std::move(request))); }
  /// Waits for the next event of the server.
  control::Event next_event() {
    EXPECT_TRUE(eventually([&] {
      hear();
      return !events_.empty();
    })) << "no event";
    if (events_.empty()) return {};
    control::Event first = std::move(events_.front());
    events_.pop_front();
    return first;
  }
  [[nodiscard]] LocalChannel& channel() noexcept { return *channel_; }

 private:
  void hear() {
    for (const LocalChannel::Bytes& bytes : channel_->hear()) {
      const control::Envelope envelope = control::decode(bytes).value();
      if (envelope.has_event())
        events_.push_back(envelope.event());
      else
        replies_[envelope.id()] = envelope.reply();
    }
  }

  std::shared_ptr<LocalChannel> channel_;
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, control::Reply> replies_;
  std::deque<control::Event> events_;
};

}  // namespace remora::test
