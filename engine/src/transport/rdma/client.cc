/// The client's side of the rdma transport: a control queue pair and a data queue pair, connected
/// by the connection manager.

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <remora/mutex.h>
#include <remora/verbs/verbs.h>

#include "base/fd_set.h"
#include "base/log.h"
#include "transport/connect.h"
#include "transport/rdma/client_domain.h"
#include "transport/rdma/completion_vector.h"
#include "transport/rdma/control.h"
#include "transport/rdma/device_choice.h"
#include "transport/rdma/fabric.h"
#include "transport/rdma/lane.h"
#include "transport/rdma/local_access.h"
#include "transport/rdma/pair_size.h"
#include "transport/rdma/reaper.h"
#include "transport/rdma/rejection.h"
#include "transport/rdma/stale_connection.h"
#include "transport/rdma/wire.h"
#include "transport/rkey_table.h"

namespace remora::transport {

namespace {

using rdma::ClientDomain;
using rdma::ControlBuffers;
using rdma::ControlRemains;
using rdma::Introduction;

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
  void close_later(ClientDomain& domain) noexcept {
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
  RdmaClientEndpoint(std::shared_ptr<ClientDomain> domain, ControlBuffers buffers,
                     verbs::Connection connection, std::shared_ptr<FdSet> events,
                     verbs::Address peer, const config::RdmaSettings& settings)
      : domain_{std::move(domain)},
        events_{std::move(events)},
        peer_{peer},
        settings_{settings},
        channel_{ControlRemains{std::move(buffers), std::move(connection)}} {}
  ~RdmaClientEndpoint() override {
    if (channel_) domain_->reaper().take(std::move(*channel_));
  }

  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kRdma; }
  [[nodiscard]] const std::string& device() const noexcept override { return domain_->device(); }

  Status send(ControlMessage message, Deadline deadline) noexcept override {
    const remora::detail::MutexLock lock{sending_};
    if (!channel_) return gone();
    return channel_->buffers.send(channel_->connection.queue_pair(), message.bytes, deadline);
  }
  [[nodiscard]] int event_fd() const noexcept override { return events_->get(); }

  Result<std::optional<ControlMessage>> receive() noexcept override {
    look();
    if (!channel_) return gone();
    auto message = channel_->buffers.receive(channel_->connection.queue_pair());
    if (message && message->has_value()) return message;
    Status status = message ? check_connections() : Status{message.error()};
    if (status) return message;
    look();  // it may have ended because the device goes
    return status.error();
  }
  void look() noexcept override {
    domain_->look();
    const verbs::ProtectionDomain now = domain_->domain();
    const bool here = !now.empty() && channel_ && now.device() == channel_->connection.device();
    if (!here) leave_device();
  }

  Result<std::unique_ptr<Lane>> open_lane(const LaneTicket& ticket, std::uint32_t depth,
                                          Deadline deadline) noexcept override {
    return rdma::connect_past_stale(
        deadline, [&](bool& stale) { return open_lane_once(ticket, depth, deadline, stale); });
  }
  Result<std::unique_ptr<Lane>> open_lane_once(const LaneTicket& ticket, std::uint32_t depth,
                                               Deadline deadline, bool& stale) {
    const verbs::ProtectionDomain domain = domain_->domain();
    if (domain.empty()) return gone();
    const verbs::Device& device = domain.device();
    const std::uint32_t depth_max = std::min(depth, device.attributes().max_qp_wr);
    auto connector = verbs::Connector::resolve(peer_, deadline, rdma::route_options(settings_));
    if (!connector) return connector.error();
    if (!(connector->device() == device))
      return Error{Code::kUnsupported, "lane on another device than its session"};
    auto port = device.query_port(connector->port());
    if (!port) return port.error();
    // Every request can complete on its own, signaled or not, when the lane breaks.
    auto queue = device.create_completion_queue(
        {.depth = depth_max, .events = true, .vector = rdma::next_completion_vector(device)});
    if (!queue) return queue.error();
    verbs::QueuePairBuilder<verbs::Rc> builder{domain, *queue, *queue};
    builder.receive_depth(1)
        .rnr_retry_count(7)  // for ever: the operation's deadline ends it
        .access(verbs::Access::kNone);
    if (auto status = rdma::apply(settings_, device, connector->port(), builder); !status)
      return status.error();
    rdma::limit_depths(builder, rdma::Asks::kClient, true);
    const auto fits = rdma::create_fitting_pair(
        builder, depth_max, [&](const auto& asked) { return connector->create_queue_pair(asked); });
    if (!fits) return fits.error();
    const std::uint32_t granted = *fits;
    Introduction said{
        .purpose = rdma::Purpose::kLane, .ticket = ticket, .mtu_bytes = settings_.mtu.value_or(0)};
    if (keys_ != nullptr) {
      if (lanes_opened_ >= rdma::kMaxLanes)
        return Error{Code::kLimitExceeded, "lanes"}.with_limit(lanes_opened_ + 1, rdma::kMaxLanes);
      said.lane = lanes_opened_;
    }
    const auto introduction = said.to_wire();
    auto connection = connector->connect(deadline, {.private_data = introduction});
    stale = connector->answer() && connector->answer()->stale();
    if (!connection) return rdma::told_by_server(*connector, connection.error());
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
        .close_later = [shared, domain = domain_] { shared->close_later(*domain); },
        .drop_later = [domain = domain_](
                          std::shared_ptr<void> left) { domain->reaper().take(std::move(left)); }};
    if (said.lane)
      return rdma::make_token_lane(std::move(pair), std::move(*queue), transfer_bytes_max, granted,
                                   keys_, *said.lane, initiator_depth);
    return rdma::make_lane(std::move(pair), std::move(*queue), transfer_bytes_max, granted,
                           initiator_depth);
  }
  Status use_lane_keys(std::shared_ptr<RkeyTable> keys) noexcept override {
    static_assert(rdma::kMaxLanes <= RkeyTable::kMaxLanes);
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
  void flush(Deadline deadline) noexcept override {
    const remora::detail::MutexLock lock{sending_};
    if (channel_) channel_->buffers.flush(deadline);
  }
  void shutdown() noexcept override {
    const remora::detail::MutexLock lock{mutex_};
    if (channel_) (void)channel_->connection.disconnect();
  }

 private:
  [[nodiscard]] static Error gone() noexcept {
    return Error{Code::kConnectionLost, "RDMA device"}.with_reason(Reason::kPeerGone);
  }
  /// By the thread that receives. The lanes end by themselves, when the session is interrupted.
  void leave_device() noexcept {
    const remora::detail::MutexLock sending{sending_};
    const remora::detail::MutexLock lock{mutex_};
    if (!channel_) return;
    events_->remove(channel_->buffers.event_fd());
    events_->remove(channel_->connection.event_fd());
    domain_->reaper().take(std::move(*channel_));
    channel_.reset();
  }
  [[nodiscard]] Status check_connections() {
    const remora::detail::MutexLock lock{mutex_};
    if (auto status = check(channel_->connection); !status) return status;
    for (const auto& lane : lanes_) {
      const remora::detail::MutexLock lane_lock{lane->mutex};
      if (lane->connection)
        if (auto status = check(*lane->connection); !status) return status;
    }
    return {};
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

  std::shared_ptr<ClientDomain> domain_;
  std::shared_ptr<FdSet> events_;
  verbs::Address peer_;
  const config::RdmaSettings settings_;
  /// Held while a message is sent. Not on the data path.
  remora::detail::Mutex sending_ REMORA_ACQUIRED_BEFORE(mutex_);
  remora::detail::Mutex mutex_;
  /// Nothing after leave_device(). The thread that receives uses it without a mutex, and changes it
  /// with both; its events are taken, and it is disconnected, with mutex_.
  std::optional<ControlRemains> channel_;
  std::vector<std::shared_ptr<LaneConnection>> lanes_ REMORA_GUARDED_BY(mutex_);
  std::shared_ptr<RkeyTable>
      keys_;  ///< null: one key for all lanes; used, as the next, by the thread that opens lanes
  std::uint32_t lanes_opened_ = 0;
};

/// A step of connecting that has run out of time says why, where verbs/ does not.
Error timed_out_as(const Error& error, Reason reason) noexcept {
  const bool bare = error.code() == Code::kTimedOut && error.reason() == Reason::kNone;
  return bare ? error.with_reason(reason) : error;
}

Result<std::unique_ptr<ClientEndpoint>> connect_to(const verbs::Address& peer,
                                                   const ConnectOptions& options, Deadline deadline,
                                                   bool& stale) {
  auto connector = verbs::Connector::resolve(peer, deadline, rdma::route_options(options.rdma));
  if (!connector) return timed_out_as(connector.error(), Reason::kUnreachable);
  const verbs::Device& device = connector->device();
  if (!options.device.empty() && device.name() != options.device)
    return Error{Code::kNotFound, "the route uses another device than the one named"}.with_subject(
        device.name());
  if (options.hardware_only && device.is_software())
    return Error{Code::kUnsupported, "software RDMA device, used only with ?transport=rdma"}
        .with_subject(device.name());
  if (auto why = rdma::why_unusable(device))
    return Error{Code::kUnsupported, "rdma"}.with_subject(std::string{device.name()} + ": " + *why);
  auto domain = ClientDomain::of(device, peer);
  if (!domain) return domain.error();
  const verbs::ProtectionDomain memory = (*domain)->domain();
  if (memory.empty())
    return Error{Code::kConnectionLost, "RDMA device"}.with_subject(device.name());
  auto buffers = ControlBuffers::create(memory);
  if (!buffers) return buffers.error();
  auto builder = buffers->builder();
  if (auto status = rdma::apply(options.rdma, device, connector->port(), builder); !status)
    return status.error();
  if (auto status = connector->create_queue_pair(builder); !status) return status.error();
  if (auto status = buffers->post_receives(connector->queue_pair()); !status) return status.error();
  auto events = FdSet::create();
  if (!events) return events.error();
  const int device_events = memory.device().raw()->async_fd;
  const auto introduction = Introduction{.mtu_bytes = options.rdma.mtu.value_or(0)}.to_wire();
  auto connection = connector->connect(deadline, {.private_data = introduction});
  stale = connector->answer() && connector->answer()->stale();
  if (!connection)
    return timed_out_as(rdma::told_by_server(*connector, connection.error()), Reason::kSilent);
  for (const int fd : {buffers->event_fd(), connection->event_fd(), device_events})
    if (auto status = events->add(fd); !status) return status.error();
  return std::unique_ptr<ClientEndpoint>{std::make_unique<RdmaClientEndpoint>(
      std::move(*domain), std::move(*buffers), std::move(*connection),
      std::make_shared<FdSet>(std::move(*events)), peer, options.rdma)};
}

}  // namespace

Result<std::unique_ptr<ClientEndpoint>> connect_rdma(const Uri& uri, const ConnectOptions& options,
                                                     Deadline deadline) {
  auto peer = verbs::Address::resolve(uri.host, uri.port, deadline);
  if (!peer) return peer.error();
  (void)verbs::initialize_fork_safety();
  return rdma::connect_past_stale(
      deadline, [&](bool& stale) { return connect_to(*peer, options, deadline, stale); });
}

}  // namespace remora::transport
