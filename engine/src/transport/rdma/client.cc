/// The client's side of the rdma transport: a control queue pair and a data queue pair, connected
/// by the connection manager.

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <remora/mutex.h>
#include <remora/verbs/verbs.h>

#include "base/fd_set.h"
#include "base/log.h"
#include "transport/connect.h"
#include "transport/memory_domain.h"
#include "transport/rdma/cache.h"
#include "transport/rdma/control.h"
#include "transport/rdma/device_metrics.h"
#include "transport/rdma/lane.h"
#include "transport/rdma/reaper.h"
#include "transport/rdma/wire.h"
#include "transport/rkey_table.h"

namespace remora::transport {

namespace {

using rdma::ControlBuffers;
using rdma::ControlRemains;
using rdma::Introduction;

class RdmaRegistration final : public Registration {
 public:
  explicit RdmaRegistration(verbs::MemoryRegion memory) noexcept : memory_{std::move(memory)} {}
  [[nodiscard]] std::uint32_t local_key() const noexcept override { return memory_.lkey(); }

 private:
  verbs::MemoryRegion memory_;
};

/// The protection domain of all sessions of this process on one device.
class RdmaMemoryDomain final : public MemoryDomain {
 public:
  explicit RdmaMemoryDomain(verbs::ProtectionDomain domain)
      : domain_{std::move(domain)}, device_{domain_.device().name()} {}

  static Result<std::shared_ptr<RdmaMemoryDomain>> of(const verbs::Device& device) {
    struct Known {
      remora::detail::Mutex mutex;
      std::vector<std::weak_ptr<RdmaMemoryDomain>> domains REMORA_GUARDED_BY(mutex);
    };
    static remora::detail::PerProcess<Known> all;
    Known& known = all.get();
    const remora::detail::MutexLock lock{known.mutex};
    std::erase_if(known.domains, [](const auto& weak) { return weak.expired(); });
    for (const auto& weak : known.domains)
      if (auto alive = weak.lock(); alive != nullptr && alive->domain_.device() == device)
        return alive;
    auto domain = device.allocate_domain();
    if (!domain) return domain.error();
    auto made = std::make_shared<RdmaMemoryDomain>(std::move(*domain));
    known.domains.push_back(made);
    return made;
  }

  Result<std::unique_ptr<Registration>> register_bytes(std::span<std::byte> bytes) override {
    auto memory = domain_.register_bytes(bytes, verbs::Access::kLocalWrite);
    // What is kept and idle stands back for what is asked for.
    if (!memory && memory.error().code() == Code::kOutOfMemory && trim())
      memory = domain_.register_bytes(bytes, verbs::Access::kLocalWrite);
    if (!memory) return memory.error();
    return std::unique_ptr<Registration>{std::make_unique<RdmaRegistration>(std::move(*memory))};
  }
  std::shared_ptr<RegistrationCache> make_cache(
      const RegistrationCache::Options& options) override {
    auto made = rdma::make_cache(domain_, options);
    const remora::detail::MutexLock lock{mutex_};
    caches_.emplace_back(made);
    return made;
  }
  void show_counters(metrics::Registry& registry) noexcept override {
    rdma::show_device_counters(registry, device_);
  }
  [[nodiscard]] const verbs::ProtectionDomain& domain() const noexcept { return domain_; }
  [[nodiscard]] Reaper& reaper() noexcept { return reaper_; }

 private:
  bool trim() {
    std::vector<std::shared_ptr<RegistrationCache>> caches;
    {
      const remora::detail::MutexLock lock{mutex_};
      std::erase_if(caches_, [](const auto& weak) { return weak.expired(); });
      for (const auto& weak : caches_) caches.push_back(weak.lock());
    }
    bool any = false;
    for (const auto& cache : caches) any = (cache != nullptr && cache->trim()) || any;
    return any;
  }

  verbs::ProtectionDomain domain_;
  const std::string device_;
  remora::detail::Mutex mutex_;
  std::vector<std::weak_ptr<RegistrationCache>> caches_ REMORA_GUARDED_BY(mutex_);
  Reaper reaper_;
};

/// A lane's connection, which two threads use: the lane posts and destroys, the control thread
/// takes events.
struct LaneConnection {
  LaneConnection(std::shared_ptr<FdSet> events_of_session, verbs::Connection made) noexcept
      : events{std::move(events_of_session)}, connection{std::move(made)} {}

  const std::shared_ptr<FdSet> events;  ///< those of its session
  remora::detail::Mutex mutex;          ///< no event is taken while the connection is destroyed
  std::optional<verbs::Connection> connection REMORA_GUARDED_BY(mutex);

  /// The control thread learns of its events. Errors: kSystem.
  Status watch() {
    const remora::detail::MutexLock lock{mutex};
    return events->add(connection->event_fd());
  }
  /// The lane posts on it without the lock, and destroys it itself.
  [[nodiscard]] verbs::QueuePair<verbs::Rc>* queue_pair() {
    const remora::detail::MutexLock lock{mutex};
    return &connection->queue_pair();
  }

  void to_error() noexcept {
    const remora::detail::MutexLock lock{mutex};
    if (connection) (void)connection->queue_pair().to_error();
  }
  /// Blocks only the caller while the device destroys it.
  void destroy() noexcept { const std::optional<verbs::Connection> gone = leave(); }
  void close_later(RdmaMemoryDomain& domain) noexcept {
    if (auto gone = leave()) domain.reaper().take(std::move(*gone));
  }

 private:
  /// The control thread takes its events no more.
  std::optional<verbs::Connection> leave() noexcept {
    const remora::detail::MutexLock lock{mutex};
    if (connection) events->remove(connection->event_fd());
    return std::exchange(connection, std::nullopt);
  }
};

class RdmaClientEndpoint final : public ClientEndpoint {
 public:
  RdmaClientEndpoint(std::shared_ptr<RdmaMemoryDomain> domain, ControlBuffers buffers,
                     verbs::Connection connection, std::shared_ptr<FdSet> events,
                     verbs::Address peer)
      : domain_{std::move(domain)},
        buffers_{std::move(buffers)},
        connection_{std::move(connection)},
        events_{std::move(events)},
        peer_{peer},
        device_{domain_->domain().device().name()} {}
  ~RdmaClientEndpoint() override {
    domain_->reaper().take(ControlRemains{std::move(buffers_), std::move(connection_)});
  }

  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kRdma; }
  [[nodiscard]] const std::string& device() const noexcept override { return device_; }

  Status send(ControlMessage message, Deadline deadline) noexcept override {
    return buffers_.send(connection_.queue_pair(), message.bytes, deadline);
  }
  [[nodiscard]] int event_fd() const noexcept override { return events_->get(); }

  Result<std::optional<ControlMessage>> receive() noexcept override {
    auto message = buffers_.receive(connection_.queue_pair());
    if (!message || message->has_value()) return message;
    const remora::detail::MutexLock lock{mutex_};
    if (auto status = check(connection_); !status) return status.error();
    for (const auto& lane : lanes_) {
      const remora::detail::MutexLock lane_lock{lane->mutex};
      if (lane->connection)
        if (auto status = check(*lane->connection); !status) return status.error();
    }
    return message;
  }

  Result<std::unique_ptr<Lane>> open_lane(const LaneTicket& ticket, std::uint32_t depth,
                                          Deadline deadline) noexcept override {
    const verbs::Device& device = domain_->domain().device();
    const std::uint32_t granted = std::min(depth, device.attributes().max_qp_wr);
    auto connector = verbs::Connector::resolve(peer_, deadline);
    if (!connector) return connector.error();
    if (!(connector->device() == device))
      return Error{Code::kUnsupported, "lane on another device than its session"};
    auto port = device.query_port(connector->port());
    if (!port) return port.error();
    // Every request can complete on its own, signaled or not, when the lane breaks.
    auto queue = device.create_completion_queue({.depth = granted, .events = true});
    if (!queue) return queue.error();
    verbs::QueuePairBuilder<verbs::Rc> builder{domain_->domain(), *queue, *queue};
    builder.send_depth(granted)
        .receive_depth(1)
        .inline_bytes(rdma::kInlineBytes)
        .rnr_retry_count(7)  // for ever: the operation's deadline ends it
        .access(verbs::Access::kNone)
        .timeout(device.is_software() ? rdma::kAckTimeoutSoftware : rdma::kAckTimeoutHardware);
    rdma::limit_depths(builder, rdma::Asks::kClient, true);
    if (auto status = create_pair(*connector, builder); !status) return status.error();
    Introduction said{.purpose = rdma::Purpose::kLane, .ticket = ticket};
    if (keys_ != nullptr) {
      if (lanes_opened_ >= rdma::kLanesMax)
        return Error{Code::kLimitExceeded, "lanes"}.with_limit(lanes_opened_ + 1, rdma::kLanesMax);
      said.lane = lanes_opened_;
    }
    const auto introduction = said.to_wire();
    auto connection = connector->connect(deadline, {.private_data = introduction});
    if (!connection) return connection.error();
    rdma::log_depths("client lane", *connection);
    const std::uint32_t initiator_depth = connection->initiator_depth();
    auto shared = std::make_shared<LaneConnection>(events_, std::move(*connection));
    if (auto status = shared->watch(); !status) return status.error();
    {
      const remora::detail::MutexLock lock{mutex_};
      lanes_.push_back(shared);
    }
    ++lanes_opened_;
    constexpr std::uint32_t kMaxTransferBytes = 1U << 20U;
    const std::uint32_t transfer_bytes_max = std::min(port->max_message_bytes, kMaxTransferBytes);
    rdma::LanePair pair{
        .pair = shared->queue_pair(),
        .to_error = [shared] { shared->to_error(); },
        .destroy = [shared] { shared->destroy(); },
        .close_later = [shared, domain = domain_] { shared->close_later(*domain); }};
    if (said.lane)
      return rdma::make_token_lane(std::move(pair), std::move(*queue), transfer_bytes_max, granted,
                                   keys_, *said.lane, initiator_depth);
    return rdma::make_lane(std::move(pair), std::move(*queue), transfer_bytes_max, granted,
                           initiator_depth);
  }
  Status use_lane_keys(std::shared_ptr<RkeyTable> keys) noexcept override {
    static_assert(rdma::kLanesMax <= RkeyTable::kLanesMax);
    keys_ = std::move(keys);
    return {};
  }

  [[nodiscard]] std::shared_ptr<MemoryDomain> memory_domain() const noexcept override {
    return domain_;
  }
  Result<AttachedGrant> attach(std::vector<WireExtent> extents,
                               std::vector<UniqueFd> /*descriptors*/,
                               Rights /*rights*/) noexcept override {
    return AttachedGrant{.extents = std::move(extents), .hold = nullptr};
  }
  void flush(Deadline deadline) noexcept override { buffers_.flush(deadline); }
  void shutdown() noexcept override {
    const remora::detail::MutexLock lock{mutex_};
    (void)connection_.disconnect();
  }

 private:
  /// With as much inline room as the device gives: some answer EINVAL to more.
  static Status create_pair(verbs::Connector& connector,
                            verbs::QueuePairBuilder<verbs::Rc>& builder) {
    Status status;
    for (const std::uint32_t inline_bytes : {rdma::kInlineBytes, 96U, 48U, 0U}) {
      status = connector.create_queue_pair(builder.inline_bytes(inline_bytes));
      if (status || status.error().system_errno() != EINVAL) break;
    }
    return status;
  }

  /// Takes events; an error when one of them ended the connection.
  [[nodiscard]] Status check(verbs::Connection& connection) const noexcept {
    while (true) {
      auto event = connection.next_event();
      if (!event) return event.error();
      if (connection.failure()) return connection.failure()->error(peer_);
      if (!event->has_value()) return {};
    }
  }

  std::shared_ptr<RdmaMemoryDomain> domain_;
  ControlBuffers buffers_;
  remora::detail::Mutex mutex_;
  /// One thread sends, one receives, both without mutex_; its events are taken, and it is
  /// disconnected, with it.
  verbs::Connection connection_;
  std::vector<std::shared_ptr<LaneConnection>> lanes_ REMORA_GUARDED_BY(mutex_);
  std::shared_ptr<RkeyTable>
      keys_;  ///< null: one key for all lanes; used, as the next, by the thread that opens lanes
  std::uint32_t lanes_opened_ = 0;
  std::shared_ptr<FdSet> events_;
  verbs::Address peer_;
  std::string device_;
};

/// A step of connecting that has run out of time says why, where verbs/ does not.
Error timed_out_as(const Error& error, Reason reason) noexcept {
  const bool bare = error.code() == Code::kTimedOut && error.reason() == Reason::kNone;
  return bare ? error.with_reason(reason) : error;
}

}  // namespace

Result<std::unique_ptr<ClientEndpoint>> connect_rdma(const Uri& uri, const ConnectOptions& options,
                                                     Deadline deadline) {
  auto peer = verbs::Address::resolve(uri.host, uri.port, deadline);
  if (!peer) return peer.error();
  (void)verbs::initialize_fork_safety();
  auto connector = verbs::Connector::resolve(*peer, deadline);
  if (!connector) return timed_out_as(connector.error(), Reason::kUnreachable);
  const verbs::Device& device = connector->device();
  if (!options.device.empty() && device.name() != options.device)
    return Error{Code::kNotFound, "the route uses another device than the one named"}.with_subject(
        device.name());
  if (options.hardware_only && device.is_software())
    return Error{Code::kUnsupported, "software RDMA device, used only with ?transport=rdma"}
        .with_subject(device.name());
  auto domain = RdmaMemoryDomain::of(device);
  if (!domain) return domain.error();
  auto buffers = ControlBuffers::create((*domain)->domain());
  if (!buffers) return buffers.error();
  if (auto status = connector->create_queue_pair(buffers->builder()); !status)
    return status.error();
  if (auto status = buffers->post_receives(connector->queue_pair()); !status) return status.error();
  auto events = FdSet::create();
  if (!events) return events.error();
  const auto introduction = Introduction{}.to_wire();
  auto connection = connector->connect(deadline, {.private_data = introduction});
  if (!connection) return timed_out_as(connection.error(), Reason::kSilent);
  for (const int fd : {buffers->event_fd(), connection->event_fd()})
    if (auto status = events->add(fd); !status) return status.error();
  return std::unique_ptr<ClientEndpoint>{std::make_unique<RdmaClientEndpoint>(
      std::move(*domain), std::move(*buffers), std::move(*connection),
      std::make_shared<FdSet>(std::move(*events)), *peer)};
}

}  // namespace remora::transport
