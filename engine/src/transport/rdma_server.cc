/// The server's side of the rdma transport. One listener takes control channels and lanes; what
/// each request is for stands in its private data. Each session has a protection domain of its own,
/// so a key of one is worth nothing on another's queue pairs; or, where a device's windows do the
/// same and the client can use them (rdma_windows.h), its lanes are in a domain with all others'.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <remora/metrics/registry.h>
#include <remora/verbs/verbs.h>

#include "support/fd_set.h"
#include "support/log.h"
#include "transport/rdma_budget.h"
#include "transport/rdma_control.h"
#include "transport/rdma_lane.h"
#include "transport/rdma_protection.h"
#include "transport/rdma_windows.h"
#include "transport/rdma_wire.h"
#include "transport/transport.h"

namespace remora::transport {

namespace {

using rdma::ControlBuffers;
using rdma::Introduction;

using rdma::kLanesMax;

/// Of all windows of a grant, and a little more for each; a device needs microseconds.
constexpr std::chrono::seconds kBindTime{2};
/// Connection requests taken in a row, before others have their turn with the control thread.
constexpr std::size_t kAcceptMost = 4;

class RdmaServerEndpoint;

/// Which session a lane belongs to.
class LaneDesk {
 public:
  void expect(const LaneTicket& ticket, RdmaServerEndpoint* endpoint) {
    const std::lock_guard lock{mutex_};
    sessions_[ticket.session_id] = {ticket.secret, endpoint};
  }
  void forget(RdmaServerEndpoint* endpoint) {
    const std::lock_guard lock{mutex_};
    std::erase_if(sessions_, [&](const auto& entry) { return entry.second.endpoint == endpoint; });
  }
  /// Calls `serve(endpoint)` while the endpoint cannot go away. False: no such session.
  template <typename Serve>
  bool with(const LaneTicket& ticket, Serve&& serve) {
    const std::lock_guard lock{mutex_};
    const auto found = sessions_.find(ticket.session_id);
    if (found == sessions_.end() || found->second.secret != ticket.secret) return false;
    serve(*found->second.endpoint);
    return true;
  }

 private:
  struct Expected {
    std::uint64_t secret;
    RdmaServerEndpoint* endpoint;
  };
  std::mutex mutex_;
  std::map<std::uint64_t, Expected> sessions_;
};

/// A data queue pair: it serves by itself. Its receives take notices, and are flushed when it dies,
/// which is the only notice of that which every device gives.
struct ServerLane {
  verbs::CompletionQueue queue;
  std::unique_ptr<std::array<rdma::NoticeBytes, rdma::kNoticeReceives>> buffers;
  rdma::BudgetShare share;
  verbs::MemoryRegion memory;                 // of the buffers
  std::uint32_t number = 0;                   ///< of the session's lanes, from 0
  std::shared_ptr<rdma::WindowLane> windows;  ///< null: grants are registrations
  std::optional<verbs::Connection> connection;

  Status post_receive(verbs::QueuePair<verbs::Rc>& pair, std::uint64_t index) const {
    return pair.post_receive(index,
                             memory.slice(index * rdma::kNoticeWireBytes, rdma::kNoticeWireBytes));
  }
};

class RdmaGrant final : public GrantHandle {
 public:
  RdmaGrant(rdma::BudgetShare share, std::vector<verbs::MemoryRegion> memory)
      : share_{std::move(share)}, memory_{std::move(memory)} {}

  Status revoke() noexcept override {
    Status status;
    for (verbs::MemoryRegion& memory : memory_) {
      const Status gone = std::move(memory).deregister();
      if (gone) continue;
      share_.lose(1);
      status = gone;
    }
    memory_.clear();
    return status;
  }

 private:
  rdma::BudgetShare share_;  // given back when they have gone
  std::vector<verbs::MemoryRegion> memory_;
};

class RdmaServerEndpoint final : public ServerEndpoint {
 public:
  RdmaServerEndpoint(std::shared_ptr<LaneDesk> desk, verbs::ProtectionDomain domain,
                     std::shared_ptr<rdma::Budget> budget, rdma::BudgetShare share,
                     std::shared_ptr<const rdma::LentMemory> lent, ControlBuffers buffers,
                     verbs::Connection connection, FdSet events)
      : desk_{std::move(desk)},
        budget_{std::move(budget)},
        lent_{std::move(lent)},
        share_{std::move(share)},
        domain_{std::move(domain)},
        buffers_{std::move(buffers)},
        events_{std::move(events)},
        peer_{connection.peer_address().to_string()},
        device_{domain_.device().name()},
        connection_{std::move(connection)} {}
  ~RdmaServerEndpoint() override {
    desk_->forget(this);
    for (const auto* lanes : {&lanes_, &dead_})
      for (const ServerLane& lane : *lanes)
        if (lane.windows != nullptr) lane.windows->end();
  }

  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kRdma; }
  [[nodiscard]] const std::string& peer() const noexcept override { return peer_; }
  [[nodiscard]] const std::string& device() const noexcept override { return device_; }
  [[nodiscard]] int event_fd() const noexcept override { return events_.get(); }

  Result<std::optional<ControlMessage>> receive() noexcept override {
    auto message = buffers_.receive(connection_.queue_pair());
    if (message && message->has_value()) return message;
    const std::lock_guard lock{mutex_};
    // Lanes first: what has come in before the end is taken, too.
    Status status;
    for (ServerLane& lane : lanes_)
      if (auto collected = collect(lane); !collected && status) status = collected;
    for (ServerLane& lane : lanes_)
      if (auto checked = check(*lane.connection); !checked && status) status = checked;
    if (auto checked = check(connection_); !checked && status) status = checked;
    if (message && !status) return status.error();
    return message;
  }
  std::size_t take_notices(std::span<Notice> notices) noexcept override {
    const std::lock_guard lock{mutex_};
    // Of a lane that has died receive() hears too: there is a failed receive left for it.
    if (notices_.empty())
      for (ServerLane& lane : lanes_) (void)collect(lane);
    const std::size_t count = std::min(notices.size(), notices_.size());
    std::copy_n(notices_.begin(), count, notices.begin());
    notices_.erase(notices_.begin(), notices_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }

  Status send(ControlMessage message) noexcept override {
    return buffers_.send(connection_.queue_pair(), message.bytes, Clock::now());
  }
  /// There is room for all answers that a client may wait for, but they free it only when the
  /// device has heard that they were taken.
  bool has_room(Deadline deadline) noexcept override {
    return buffers_.wait_for_room(deadline).ok();
  }
  void flush(Deadline deadline) noexcept override { buffers_.flush(deadline); }
  void expect_lanes(const LaneTicket& ticket) noexcept override { desk_->expect(ticket, this); }
  void allow_lane_keys() noexcept override { by_windows_ = lent_ != nullptr; }
  [[nodiscard]] bool has_lane_keys() const noexcept override { return by_windows_; }

  /// Control thread, from the listener. `said`: its number, if the client tells it.
  Status add_lane(verbs::ConnectionRequest request, std::optional<std::uint32_t> said) {
    const std::lock_guard lock{mutex_};
    if (over_) return Error{Code::kConnectionLost, "lane of a session that is over"};
    const auto number = number_of_next(said);
    if (!number) return number.error();
    // A session that has grants must be able to come back to them.
    auto share = rdma::BudgetShare::count(budget_, 1);
    auto queue = domain_.device().create_completion_queue(
        {.depth = rdma::kNoticeReceives + 4, .events = true});
    if (!queue) return queue.error();
    auto buffers = std::make_unique<std::array<rdma::NoticeBytes, rdma::kNoticeReceives>>();
    const verbs::ProtectionDomain& domain = by_windows_ ? lent_->domain() : domain_;
    auto memory = domain.register_bytes(std::as_writable_bytes(std::span{*buffers}),
                                        verbs::Access::kLocalWrite);
    if (!memory) return memory.error();
    std::shared_ptr<rdma::WindowLane> windows;
    if (by_windows_) {
      auto made = rdma::WindowLane::create(domain.device());
      if (!made) return made.error();
      windows = std::move(*made);
    }
    verbs::QueuePairBuilder<verbs::Rc> builder{
        domain, windows == nullptr ? *queue : windows->queue(), *queue};
    builder.send_depth(windows == nullptr ? 1 : rdma::WindowLane::kBinds)
        .receive_depth(rdma::kNoticeReceives)
        .access(verbs::Access::kRemoteRead | verbs::Access::kRemoteWrite |
                verbs::Access::kRemoteAtomic | verbs::Access::kLocalWrite);
    if (domain_.device().is_software()) builder.timeout(rdma::kAckTimeoutSoftware);
    rdma::limit_depths(builder, rdma::Asks::kClient, false);
    if (auto status = request.create_queue_pair(builder); !status) return status;
    ServerLane lane{std::move(*queue), std::move(buffers), std::move(share), std::move(*memory),
                    *number,           std::move(windows), std::nullopt};
    for (std::uint64_t index = 0; index < rdma::kNoticeReceives; ++index)
      if (auto status = lane.post_receive(request.queue_pair(), index); !status) return status;
    if (auto status = lane.queue.arm(); !status) return status;
    auto connection = std::move(request).accept();
    if (!connection) return connection.error();
    rdma::log_depths("server lane", *connection);
    lane.connection.emplace(std::move(*connection));
    for (const int fd : {lane.queue.event_fd(), lane.connection->event_fd()})
      if (auto status = events_.add(fd); !status) return status;
    if (lane.windows != nullptr) lane.windows->begin(lane.connection->queue_pair());
    lanes_.push_back(std::move(lane));
    return {};
  }

  Result<Grant> grant(const GrantRequest& request) noexcept override {
    using verbs::Access;
    if (by_windows_) return grant_windows(request);
    const verbs::ProtectionDomain domain = this->domain();
    Access access = rdma::remote_access(request.rights);
    if (contains(access, Access::kRemoteWrite) || contains(access, Access::kRemoteAtomic))
      access |= Access::kLocalWrite;
    // Before the device is asked: what others need is left to them.
    auto share = rdma::BudgetShare::take(budget_, request.extents.size());
    if (!share) return share.error();
    Grant made;
    std::vector<verbs::MemoryRegion> registered;
    std::uint64_t start = 0;
    for (const MemoryStretch& stretch : request.extents) {
      auto memory = domain.register_bytes({stretch.address, stretch.length_bytes}, access);
      if (!memory) return memory.error();
      made.extents.push_back({.start_bytes = start,
                              .length_bytes = stretch.length_bytes,
                              .remote_address = memory->address(),
                              .remote_key = memory->rkey()});
      start += stretch.length_bytes;
      registered.push_back(std::move(*memory));
    }
    made.handle = std::make_unique<RdmaGrant>(std::move(*share), std::move(registered));
    return made;
  }
  Status renew(Grant& grant) noexcept override {
    auto* const windows = dynamic_cast<rdma::WindowGrant*>(grant.handle.get());
    if (windows == nullptr) return {};
    return windows->renew(window_lanes(), grant.extents, grant.lane_keys,
                          deadline_after(kBindTime));
  }

  void shutdown() noexcept override {
    desk_->forget(this);
    const std::lock_guard lock{mutex_};
    over_ = true;
    for (const ServerLane& lane : lanes_) (void)lane.connection->queue_pair().to_error();
    // Each receive says how it ended; a device may take a moment for that.
    constexpr std::chrono::milliseconds kFlushTime{5};
    const Deadline flushed = Clock::now() + kFlushTime;
    for (ServerLane& lane : lanes_) take_last(lane, flushed);
    // In its error state a queue pair takes part in nothing any more, and ends what the worker may
    // be waiting for. It is for the worker to destroy it, which may take as long as the interface
    // is down; windows go before it, and there may be very many.
    for (ServerLane& lane : lanes_) {
      if (lane.windows != nullptr) lane.windows->stop();
      dead_.push_back(std::move(lane));
    }
    lanes_.clear();
    (void)connection_.disconnect();
  }
  void bury() noexcept override {
    std::vector<ServerLane> dead;
    {
      const std::lock_guard lock{mutex_};
      dead.swap(dead_);
    }
    for (const ServerLane& lane : dead)
      if (lane.windows != nullptr) lane.windows->end();
  }
  Status take_over(ServerEndpoint& before) noexcept override {
    auto* const old = dynamic_cast<RdmaServerEndpoint*>(&before);
    if (old == nullptr || old->device_ != device_)
      return Error{Code::kUnsupported, "resume over another transport or device"};
    const std::scoped_lock lock{mutex_, old->mutex_};
    if (by_windows_ != old->by_windows_)
      return Error{Code::kUnsupported, "resume by a client that uses keys in another way"};
    // Its registrations are of its domain, and so are the new lanes: the keys stay. Windows have
    // gone with their lanes, and are bound again when the client asks for their keys.
    domain_ = old->domain_;
    return {};
  }

 private:
  Result<Grant> grant_windows(const GrantRequest& request) {
    auto windows = rdma::WindowGrant::create(lent_, request);
    if (!windows) return windows.error();
    Grant made;
    made.handle = std::move(*windows);
    if (auto status = renew(made); !status) return status.error();
    return made;
  }
  /// Those there are now. Nobody binds with the lock.
  [[nodiscard]] rdma::WindowLanes window_lanes() {
    const std::lock_guard lock{mutex_};
    rdma::WindowLanes lanes;
    for (const ServerLane& lane : lanes_) {
      if (lanes.size() <= lane.number) lanes.resize(lane.number + 1);
      lanes[lane.number] = lane.windows;
    }
    return lanes;
  }
  /// With the lock. Errors: kLimitExceeded; kProtocol: the session has that one.
  [[nodiscard]] Result<std::uint32_t> number_of_next(std::optional<std::uint32_t> said) const {
    if (lanes_.size() >= kLanesMax)
      return Error{Code::kLimitExceeded, "lanes"}.with_limit(lanes_.size() + 1, kLanesMax);
    const auto taken = [&](std::uint32_t number) {
      return std::any_of(lanes_.begin(), lanes_.end(),
                         [&](const ServerLane& lane) { return lane.number == number; });
    };
    if (said && taken(*said)) return Error{Code::kProtocol, "lane of a number that there is"};
    // Who does not say is counted as it comes.
    std::uint32_t number = said.value_or(0);
    while (taken(number)) ++number;
    return number;
  }
  [[nodiscard]] verbs::ProtectionDomain domain() {
    const std::lock_guard lock{mutex_};
    return domain_;
  }
  [[nodiscard]] static Status check(verbs::Connection& connection) noexcept {
    while (true) {
      auto event = connection.next_event();
      if (!event) return event.error();
      if (connection.failure()) return connection.failure()->error(connection.peer_address());
      if (!event->has_value()) return {};
    }
  }
  /// Takes the notices that a lane's receives have brought, as long as there is room for them. A
  /// receive that failed says that the lane is dead.
  Status collect(ServerLane& lane) {
    if (auto taken = lane.queue.take_events(); !taken) return taken.error();
    if (auto status = lane.queue.arm(); !status) return status;
    while (notices_.size() < kNoticesMax) {
      std::array<verbs::Completion, 1> storage;
      auto found = lane.queue.poll(storage);
      if (!found) return found.error();
      if (found->empty()) return {};
      const verbs::Completion& completion = found->front();
      if (!completion.ok())
        return Error{Code::kConnectionLost, "lane"}
            .with_reason(Reason::kLaneBroken)
            .with_completion(completion.status(), completion.vendor_error());
      const std::uint64_t index = completion.id();
      if (completion.length_bytes() != rdma::kNoticeWireBytes)
        return Error{Code::kProtocol, "lane"}.with_subject("no notice of ours");
      notices_.push_back(rdma::notice_from_wire((*lane.buffers)[index]));
      if (auto status = lane.post_receive(lane.connection->queue_pair(), index); !status)
        return status;
    }
    return {};
  }

  /// What the lane has acknowledged until its end, however much waits already.
  void take_last(ServerLane& lane, Deadline until) noexcept {
    std::array<verbs::Completion, 1> storage;
    for (std::size_t left = rdma::kNoticeReceives; left > 0;) {
      const auto found = lane.queue.poll(storage);
      if (!found) return;
      if (found->empty()) {
        if (Clock::now() >= until) return;
        std::this_thread::sleep_for(std::chrono::microseconds{100});
        continue;
      }
      --left;
      const verbs::Completion& completion = found->front();
      if (completion.ok() && completion.length_bytes() == rdma::kNoticeWireBytes)
        notices_.push_back(rdma::notice_from_wire((*lane.buffers)[completion.id()]));
    }
  }

  std::shared_ptr<LaneDesk> desk_;
  const std::shared_ptr<rdma::Budget> budget_;          ///< of registrations
  const std::shared_ptr<const rdma::LentMemory> lent_;  ///< null: no windows on this device
  std::atomic<bool> by_windows_{false};  ///< grants are; written before there are any, or lanes
  rdma::BudgetShare share_;              ///< of the control channel's buffers
  verbs::ProtectionDomain
      domain_;  ///< of grants, if not, and their lanes; under mutex_ once in use
  ControlBuffers buffers_;
  FdSet events_;
  std::string peer_;
  std::string device_;
  std::mutex mutex_;  // connections and lanes: control thread, and shutdown from any
  verbs::Connection connection_;
  bool over_ = false;  ///< shut down: no lane is added any more
  std::vector<ServerLane> lanes_;
  std::vector<ServerLane> dead_;  ///< until bury()
  std::deque<Notice> notices_;
};

class RdmaListener final : public Listener {
 public:
  /// What a server may have of its devices, and the series that tell how much it has.
  struct Budgets {
    std::shared_ptr<rdma::RegistrationBudgets> registrations;
    std::shared_ptr<rdma::WindowBudgets> windows;
    std::vector<metrics::CallbackHandle> series;
    /// Errors: those of Registry::gauge_callback().
    static Result<Budgets> create(const config::Limits& limits, metrics::Registry& registry);
  };
  RdmaListener(verbs::ConnectionListener listener, std::vector<std::string> devices,
               config::RdmaProtection wanted, std::vector<DeviceProtection> protection,
               Budgets budgets)
      : listener_{std::move(listener)},
        devices_{std::move(devices)},
        wanted_{wanted},
        protection_{std::move(protection)},
        budgets_{std::move(budgets)} {}

  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kRdma; }
  [[nodiscard]] int event_fd() const noexcept override { return listener_.event_fd(); }
  [[nodiscard]] std::uint16_t port() const noexcept override {
    return listener_.local_address().port();
  }
  [[nodiscard]] std::vector<std::string> devices() const override { return devices_; }
  [[nodiscard]] std::vector<DeviceProtection> protection() const override { return protection_; }
  [[nodiscard]] std::string description() const override {
    std::string text = "rdma " + listener_.local_address().to_string() + " on";
    for (const std::string& device : devices_) text += " " + device;
    return text;
  }

  Result<bool> lend(std::span<const MemoryStretch> pieces, std::shared_ptr<void> hold) override {
    for (DeviceProtection& chosen : protection_) {
      if (chosen.mechanism == rdma::kWindows) {
        auto lent = lend_on(chosen.device, pieces, hold);
        if (lent) {
          lent_[chosen.device] = std::move(*lent);
        } else if (wanted_ == config::RdmaProtection::kAuto) {
          chosen.mechanism = rdma::kRegistrations;
          chosen.reason = "the pool could not be registered: " + lent.error().message();
        } else {
          return lent.error();
        }
      }
      rdma::log_protection(wanted_, chosen);
    }
    return !lent_.empty();
  }

  Result<std::vector<std::unique_ptr<ServerEndpoint>>> accept() noexcept override {
    std::vector<std::unique_ptr<ServerEndpoint>> arrived;
    // The kernel has room for another request as soon as one is taken: without a bound, who
    // connects as fast as this serves would keep the control thread here, before any limit is
    // looked at.
    for (std::size_t i = 0; i < kAcceptMost; ++i) {
      auto request = listener_.next_request();
      if (!request)
        return arrived.empty() ? Result<decltype(arrived)>{request.error()} : std::move(arrived);
      if (!request->has_value()) return arrived;
      auto endpoint = admit(std::move(**request));
      if (!endpoint)
        log::warn("rdma: {}", endpoint.error().message());
      else if (*endpoint != nullptr)
        arrived.push_back(std::move(*endpoint));
    }
    return arrived;
  }

 private:
  /// Null for a lane, which goes to its session. A request that is dropped is rejected by that.
  Result<std::unique_ptr<ServerEndpoint>> admit(verbs::ConnectionRequest request) {
    const std::string peer = request.peer_address().to_string();
    const auto introduction = Introduction::from_wire(request.private_data());
    if (!introduction)
      return Error{Code::kProtocol, "connection request that is not ours"}.with_subject(peer);
    const std::string device{request.device().name()};
    if (std::find(devices_.begin(), devices_.end(), device) == devices_.end())
      return Error{Code::kNotFound, "request over a device that is not served"}.with_subject(
          device);
    if (introduction->purpose == rdma::Purpose::kLane) {
      Status added;
      const bool known = desk_->with(introduction->ticket, [&](RdmaServerEndpoint& endpoint) {
        added = endpoint.add_lane(std::move(request), introduction->lane);
      });
      if (!known) return Error{Code::kProtocol, "lane without a session"}.with_subject(peer);
      if (!added) return added.error().with_subject(peer);
      return std::unique_ptr<ServerEndpoint>{};
    }
    return begin(std::move(request));
  }

  Result<std::shared_ptr<const rdma::LentMemory>> lend_on(const std::string& name,
                                                          std::span<const MemoryStretch> pieces,
                                                          const std::shared_ptr<void>& hold) {
    const auto open = verbs::connection_manager_devices();
    if (!open) return open.error();
    const auto found = std::find_if(open->begin(), open->end(),
                                    [&](const auto& device) { return device.name() == name; });
    if (found == open->end())
      return Error{Code::kNotFound, "the connection manager does not know it"}.with_subject(name);
    const verbs::DeviceAttributes& can = found->attributes();
    return rdma::LentMemory::create(*found, pieces, hold,
                                    {budgets_.registrations->of(name, can.max_mr_count),
                                     budgets_.windows->of(name, can.max_mw_count)});
  }

  Result<std::unique_ptr<ServerEndpoint>> begin(verbs::ConnectionRequest request) {
    const verbs::Device& device = request.device();
    auto budget = budgets_.registrations->of(device.name(), device.attributes().max_mr_count);
    auto share = rdma::BudgetShare::count(budget, 1);
    auto domain = device.allocate_domain();
    if (!domain) return domain.error();
    auto buffers = ControlBuffers::create(*domain);
    if (!buffers) return buffers.error();
    if (auto status = request.create_queue_pair(buffers->builder()); !status) return status.error();
    if (auto status = buffers->post_receives(request.queue_pair()); !status) return status.error();
    auto events = FdSet::create();
    if (!events) return events.error();
    auto connection = std::move(request).accept();
    if (!connection) return connection.error();
    for (const int fd : {buffers->event_fd(), connection->event_fd()})
      if (auto status = events->add(fd); !status) return status.error();
    const auto lent = lent_.find(device.name());
    return std::unique_ptr<ServerEndpoint>{std::make_unique<RdmaServerEndpoint>(
        desk_, std::move(*domain), std::move(budget), std::move(share),
        lent == lent_.end() ? nullptr : lent->second, std::move(*buffers), std::move(*connection),
        std::move(*events))};
  }

  verbs::ConnectionListener listener_;
  std::vector<std::string> devices_;
  config::RdmaProtection wanted_;
  std::vector<DeviceProtection> protection_;
  Budgets budgets_;
  std::map<std::string, std::shared_ptr<const rdma::LentMemory>, std::less<>> lent_;  ///< by device
  std::shared_ptr<LaneDesk> desk_ = std::make_shared<LaneDesk>();
};

Result<RdmaListener::Budgets> RdmaListener::Budgets::create(const config::Limits& limits,
                                                            metrics::Registry& registry) {
  Budgets made{std::make_shared<rdma::RegistrationBudgets>(limits.registrations_max),
               std::make_shared<rdma::WindowBudgets>(limits.windows_max),
               {}};
  auto registrations = registry.gauge_callback(
      "remora_server_registrations", "Registrations of memory with RDMA devices.", {},
      [budgets = made.registrations] { return static_cast<double>(budgets->used()); });
  if (!registrations) return registrations.error();
  auto windows = registry.gauge_callback(
      "remora_server_windows", "Memory windows of RDMA devices.", {},
      [budgets = made.windows] { return static_cast<double>(budgets->used()); });
  if (!windows) return windows.error();
  made.series.push_back(std::move(*registrations));
  made.series.push_back(std::move(*windows));
  return made;
}

}  // namespace

Result<std::unique_ptr<Listener>> listen_rdma(const config::ServerConfig& config,
                                              const std::shared_ptr<metrics::Registry>& registry) {
  const std::string& wanted = config.transports.rdma_device;
  const auto found = verbs::devices();
  if (!found) return wanted.empty() ? found.error() : found.error().with_subject(wanted);
  std::vector<std::string> devices;
  for (const verbs::DeviceEntry& entry : *found)
    if (wanted.empty() || entry.name() == wanted) devices.emplace_back(entry.name());
  if (devices.empty()) return Error{Code::kNotFound, "transports.rdma_device"}.with_subject(wanted);
  (void)verbs::initialize_fork_safety();
  constexpr std::chrono::seconds kNameTimeout{10};
  auto address = verbs::Address::resolve(config.listen.address, config.listen.port,
                                         verbs::deadline_in(kNameTimeout));
  if (!address) return address.error();
  auto listener = verbs::ConnectionListener::bind(*address);
  if (!listener) return listener.error();
  const config::RdmaProtection protection = config.transports.rdma_protection;
  auto chosen = rdma::choose_protection(protection, devices);
  if (!chosen) return chosen.error();
  auto budgets = RdmaListener::Budgets::create(config.limits, *registry);
  if (!budgets) return budgets.error();
  return std::unique_ptr<Listener>{
      std::make_unique<RdmaListener>(std::move(*listener), std::move(devices), protection,
                                     std::move(*chosen), std::move(*budgets))};
}

}  // namespace remora::transport
