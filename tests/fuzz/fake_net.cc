#include "fake_net.h"

#include <atomic>
#include <chrono>
#include <future>
#include <google/protobuf/stubs/logging.h>
#include <span>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <thread>
#include <utility>

#include <remora/metrics/registry.h>

#include "../unit/engine/fake_lane.h"
#include "base/log.h"
#include "protocol/messages.h"

namespace remora::fuzz {

using namespace std::chrono_literals;
using transport::ControlMessage;

namespace {

/// A wait that takes longer is a finding: the call would wait for ever.
constexpr auto kPatience = 20s;

UniqueFd make_event() {
  UniqueFd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  require(static_cast<bool>(event), "eventfd");
  return event;
}

void clear(const UniqueFd& event) {
  eventfd_t value = 0;
  ::eventfd_read(event.get(), &value);
}

/// Waits for a condition that other threads bring about.
template <typename Condition>
void await(Condition&& condition, std::string_view what) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    require(std::chrono::steady_clock::now() < give_up, what);
    std::this_thread::yield();
  }
}

Error gone() { return Error{Code::kConnectionLost, "fuzz"}.with_reason(Reason::kPeerGone); }

}  // namespace

Bytes bytes_of(std::string_view text) {
  const auto raw = std::as_bytes(std::span{text});
  return {raw.begin(), raw.end()};
}

config::ServerConfig server_config(std::uint64_t pool_bytes) {
  config::ServerConfig config;
  config.transports.rdma = config::Availability::kOff;
  config.transports.shm = config::Availability::kOff;
  config.pool.size_bytes = pool_bytes;
  config.pool.piece_bytes = std::uint64_t{256} << 10U;
  config.pool.huge_pages = config::HugePages::kNever;
  config.limits.handshake_timeout = std::chrono::minutes{10};
  config.limits.session_lease = std::chrono::minutes{10};
  return config;
}

ServerWire::ServerWire() : event_{make_event()} {}

void ServerWire::say(Bytes message) {
  std::unique_lock lock{mutex_};
  if (shut_ || client_gone_) return;
  inbox_.push_back(std::move(message));
  drained_ = false;
  signal_event(event_.get());
  require(changed_.wait_for(lock, kPatience, [this] { return drained_ || shut_; }),
          "the server takes what was said");
}

void ServerWire::hang_up() {
  std::unique_lock lock{mutex_};
  if (client_gone_) return;
  client_gone_ = true;
  signal_event(event_.get());
  require(changed_.wait_for(lock, kPatience, [this] { return shut_; }),
          "the server notices that a client hangs up");
}

std::vector<Bytes> ServerWire::hear() {
  const std::lock_guard lock{mutex_};
  return std::exchange(outbox_, {});
}

bool ServerWire::shut() const {
  const std::lock_guard lock{mutex_};
  return shut_;
}

/// The server's end of a connection. Grants are those of tcp, with keys of a real table.
class FakeServerEnd final : public transport::ServerEndpoint {
 public:
  explicit FakeServerEnd(std::shared_ptr<ServerWire> wire)
      : wire_{std::move(wire)}, session_{transport::tcp::ServedSession::create().value()} {}

  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kTcp; }
  [[nodiscard]] const std::string& peer() const noexcept override { return peer_; }
  [[nodiscard]] const std::string& device() const noexcept override { return device_; }
  [[nodiscard]] int event_fd() const noexcept override { return wire_->event_.get(); }
  Result<std::optional<ControlMessage>> receive() noexcept override {
    const std::lock_guard lock{wire_->mutex_};
    if (!wire_->inbox_.empty()) {
      ControlMessage first{.bytes = std::move(wire_->inbox_.front()), .descriptors = {}};
      wire_->inbox_.pop_front();
      return std::optional{std::move(first)};
    }
    wire_->drained_ = true;
    wire_->changed_.notify_all();
    if (wire_->client_gone_) return gone();
    clear(wire_->event_);
    return std::optional<ControlMessage>{};
  }
  Status send(ControlMessage message) noexcept override {
    const std::lock_guard lock{wire_->mutex_};
    if (wire_->shut_ || wire_->client_gone_) return gone();
    wire_->outbox_.push_back(std::move(message.bytes));
    return {};
  }
  void flush(Deadline /*deadline*/) noexcept override {}
  void expect_lanes(const transport::LaneTicket& /*ticket*/) noexcept override {}
  Result<transport::Grant> grant(const transport::GrantRequest& request) noexcept override {
    auto made = session_->grant(request);
    if (made) made->handle = std::make_unique<Counted>(wire_->grants_, std::move(made->handle));
    return made;
  }
  void shutdown() noexcept override {
    session_->end();
    const std::lock_guard lock{wire_->mutex_};
    wire_->shut_ = true;
    wire_->changed_.notify_all();
  }
  Status take_over(ServerEndpoint& before) noexcept override {
    session_ = static_cast<FakeServerEnd&>(before).session_;
    session_->begin_again();
    return {};
  }

 private:
  class Counted final : public transport::GrantHandle {
   public:
    Counted(std::shared_ptr<std::atomic<std::size_t>> count, std::unique_ptr<GrantHandle> handle)
        : count_{std::move(count)}, handle_{std::move(handle)} {
      ++*count_;
    }
    ~Counted() override { --*count_; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

   private:
    std::shared_ptr<std::atomic<std::size_t>> count_;
    std::unique_ptr<GrantHandle> handle_;
  };

  std::shared_ptr<ServerWire> wire_;
  std::shared_ptr<transport::tcp::ServedSession> session_;
  const std::string peer_ = "fuzz";
  const std::string device_;
};

/// Accepts the connections of the fuzzer.
class FuzzServer::FuzzListener final : public transport::Listener {
 public:
  FuzzListener() : event_{make_event()} {}
  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kTcp; }
  [[nodiscard]] int event_fd() const noexcept override { return event_.get(); }
  Result<std::vector<std::unique_ptr<transport::ServerEndpoint>>> accept() noexcept override {
    const std::lock_guard lock{mutex_};
    clear(event_);
    return std::exchange(waiting_, {});
  }
  [[nodiscard]] std::string description() const override { return "fuzz"; }
  [[nodiscard]] std::uint16_t port() const noexcept override { return 1; }

  void knock(std::unique_ptr<transport::ServerEndpoint> end) {
    const std::lock_guard lock{mutex_};
    waiting_.push_back(std::move(end));
    signal_event(event_.get());
  }

 private:
  UniqueFd event_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<transport::ServerEndpoint>> waiting_;
};

FuzzServer::FuzzServer(config::ServerConfig config)
    : config_{std::move(config)}, registry_{metrics::Registry::create().value()} {
  start();
}

FuzzServer::~FuzzServer() = default;

void FuzzServer::start() {
  core_.reset();
  auto listener = std::make_unique<FuzzListener>();
  listener_ = listener.get();
  detail::ListenerSet listeners;
  listeners.add(std::move(listener));
  detail::StatusEndpoint status{
      std::make_shared<detail::ServerStatusReport>(std::vector<RefusedTransport>{})};
  registry_ = metrics::Registry::create().value();
  core_ =
      detail::ServerCore::start_behind(config_, detail::ServerMetrics::create(registry_).value(),
                                       std::move(listeners), std::move(status), {})
          .value();
}

std::shared_ptr<ServerWire> FuzzServer::connect() {
  auto wire = std::make_shared<ServerWire>();
  listener_->knock(std::make_unique<FakeServerEnd>(wire));
  wires_.push_back(wire);
  return wire;
}

void FuzzServer::settle() {
  // A job of the worker may enqueue one more job.
  for (int i = 0; i < 2; ++i) {
    std::promise<void> done;
    auto future = done.get_future();
    require(core_->enqueue([&done] { done.set_value(); }), "the worker works");
    require(future.wait_for(kPatience) == std::future_status::ready, "the worker goes on");
  }
}

void FuzzServer::say(ServerWire& wire, Bytes message) {
  wire.say(std::move(message));
  settle();
}

void FuzzServer::end_run() {
  for (const auto& wire : wires_) wire->hang_up();
  // Waits until the control thread has closed the connections. It then gives jobs to the worker.
  await([this] { return core_->session_count() == 0; }, "no session is left");
  settle();
  core_->drain().end();  // the next run gets regions and grants
  const bool kept = registry_->value("remora_server_sessions_kept").value() != 0;
  // The server keeps sessions that a client may resume: the next run gets a new server.
  if (kept || ++runs_ % 4096 == 0) {
    wires_.clear();
    return start();
  }
  for (const auto& wire : wires_) require(wire->grants() == 0, "no grant is left");
  wires_.clear();
  for (const RegionInfo& region : core_->catalog().list("", SIZE_MAX)) {
    require(region.open_count == 0, "no client has a region open");
    (void)core_->regions().remove(region.name, Removal::kIfUnused);
  }
  settle();
  require(core_->catalog().size() == 0, "no region is left");
  await([this] { return core_->pool_usage().free_bytes() == core_->pool_usage().total_bytes; },
        "the pool gets all of its memory back");
}

ClientWire::ClientWire(std::function<void(ClientWire&, Bytes)> on_send)
    : event_{make_event()}, on_send_{std::move(on_send)} {}

void ClientWire::say(Bytes message) {
  const std::lock_guard lock{mutex_};
  if (ended_) return;
  inbox_.push_back(std::move(message));
  signal_event(event_.get());
}

void ClientWire::hang_up() {
  const std::lock_guard lock{mutex_};
  ended_ = true;
  signal_event(event_.get());
}

void ClientWire::forget() {
  const std::lock_guard lock{send_mutex_};
  on_send_ = nullptr;
}

/// Passes a message of the client to `on_send`. False: the connection has ended.
bool ClientWire::pass(Bytes said) {
  {
    const std::lock_guard lock{mutex_};
    if (ended_) return false;
  }
  const std::lock_guard lock{send_mutex_};
  if (on_send_) on_send_(*this, std::move(said));
  return true;
}

class FakeClientEnd final : public transport::ClientEndpoint {
 public:
  explicit FakeClientEnd(std::shared_ptr<ClientWire> wire) : wire_{std::move(wire)} {}

  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kTcp; }
  [[nodiscard]] const std::string& device() const noexcept override { return device_; }
  Status send(ControlMessage message, Deadline /*deadline*/) noexcept override {
    return wire_->pass(std::move(message.bytes)) ? Status{} : Status{gone()};
  }
  [[nodiscard]] int event_fd() const noexcept override { return wire_->event_.get(); }
  Result<std::optional<ControlMessage>> receive() noexcept override {
    const std::lock_guard lock{wire_->mutex_};
    if (!wire_->inbox_.empty()) {
      ControlMessage first{.bytes = std::move(wire_->inbox_.front()), .descriptors = {}};
      wire_->inbox_.pop_front();
      return std::optional{std::move(first)};
    }
    if (wire_->ended_) return gone();
    clear(wire_->event_);
    return std::optional<ControlMessage>{};
  }
  Result<std::unique_ptr<transport::Lane>> open_lane(const transport::LaneTicket& /*ticket*/,
                                                     std::uint32_t depth,
                                                     Deadline /*deadline*/) noexcept override {
    return std::unique_ptr<transport::Lane>{std::make_unique<transport::FakeLane>(depth)};
  }
  [[nodiscard]] std::shared_ptr<transport::MemoryDomain> memory_domain() const noexcept override {
    return nullptr;
  }
  Result<transport::AttachedGrant> attach(std::vector<transport::WireExtent> extents,
                                          std::vector<UniqueFd> /*descriptors*/,
                                          Rights /*rights*/) noexcept override {
    return transport::AttachedGrant{.extents = std::move(extents), .hold = nullptr};
  }
  void shutdown() noexcept override { wire_->hang_up(); }

 private:
  std::shared_ptr<ClientWire> wire_;
  const std::string device_;
};

std::unique_ptr<transport::ClientEndpoint> client_end(std::shared_ptr<ClientWire> wire) {
  return std::make_unique<FakeClientEnd>(std::move(wire));
}

EngineOptions engine_options() {
  EngineOptions options;
  options.client_name = "client";
  options.control_deadline = kCallMax;
  options.placement = "none";
  return options;
}

Result<std::shared_ptr<detail::SessionCore>> start_session(
    const std::shared_ptr<detail::EngineCore>& engine,
    std::function<Result<std::unique_ptr<transport::ClientEndpoint>>()> connect) {
  return detail::SessionCore::start(
      engine,
      {.server = "fuzz:1",
       .connect = [connect = std::move(connect)](Deadline /*deadline*/) { return connect(); }},
      deadline_after(kCallMax));
}

}  // namespace remora::fuzz

/// Turns the product's log off: bytes of the input would fill the screen.
extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  remora::log::logger().set_level(spdlog::level::off);
  static const google::protobuf::LogSilencer s_quiet;
  return 0;
}
