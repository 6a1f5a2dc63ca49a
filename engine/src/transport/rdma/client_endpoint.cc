/// The client's side of the rdma transport: a control queue pair and a data queue pair, connected
/// by the connection manager.

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
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
#include "transport/connection_rails.h"
#include "transport/rdma/client_domain.h"
#include "transport/rdma/client_rails.h"
#include "transport/rdma/completion_vector.h"
#include "transport/rdma/control_buffers.h"
#include "transport/rdma/device_addresses.h"
#include "transport/rdma/device_choice.h"
#include "transport/rdma/fabric_settings.h"
#include "transport/rdma/lane.h"
#include "transport/rdma/lane_connection.h"
#include "transport/rdma/local_access.h"
#include "transport/rdma/pair_size.h"
#include "transport/rdma/reaper.h"
#include "transport/rdma/rejection.h"
#include "transport/rdma/session_route.h"
#include "transport/rdma/stale_connection.h"
#include "transport/rdma/thread_domain.h"
#include "transport/rdma/wire.h"
#include "transport/rkey_table.h"
#include "transport/session_domain.h"

namespace remora::transport {

namespace {

using rdma::ClientDomain;
using rdma::ClientRail;
using rdma::ClientRails;
using rdma::ControlBuffers;
using rdma::ControlRemains;
using rdma::Introduction;
using rdma::LaneConnection;

class RdmaClientEndpoint final : public ClientEndpoint, private ConnectionRails {
 public:
  /// `rails`: null when all lanes go over one device.
  RdmaClientEndpoint(std::shared_ptr<ClientDomain> domain, ControlBuffers buffers,
                     verbs::Connection connection, std::shared_ptr<FdSet> events,
                     verbs::Address peer, const config::RdmaSettings& settings,
                     std::unique_ptr<ClientRails> rails)
      : domain_{std::move(domain)},
        device_{connection.device().name()},
        events_{std::move(events)},
        peer_{peer},
        settings_{settings},
        rails_{std::move(rails)},
        channel_{ControlRemains{std::move(buffers), std::move(connection)}} {}
  ~RdmaClientEndpoint() override {
    if (channel_) domain_->reaper().take(std::move(*channel_));
  }

  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kRdma; }
  [[nodiscard]] const std::string& device() const noexcept override { return device_; }

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
    look();  // the channel may have ended because the device goes
    return status.error();
  }
  void look() noexcept override {
    domain_->look();
    if (rails_ != nullptr) {
      rails_->memory()->look();
      rails_->look();
    }
    const verbs::ProtectionDomain now = domain_->domain();
    const bool here = !now.empty() && channel_ && now.device() == channel_->connection.device();
    if (!here) leave_device();
  }

  Result<std::unique_ptr<Lane>> open_lane(const LaneTicket& ticket, std::uint32_t depth,
                                          Deadline deadline) noexcept override {
    if (rails_ != nullptr && keys_ == nullptr)
      return Error{Code::kUnsupported, "rails with a server that has one key for all lanes"};
    if (rails_ == nullptr)
      return open_lane_over({.peer = peer_, .domain = domain_, .column = 0, .shown = nullptr},
                            ticket, depth, deadline);
    Result<std::unique_ptr<Lane>> lane = gone();
    const std::vector<ClientRail> to_try = rails_->of_lane(lanes_opened_);
    for (const ClientRail& rail : to_try) {
      // A rail that does not answer must leave time for another rail.
      const bool last = &rail == &to_try.back();
      const auto left = deadline - Clock::now();
      lane = open_lane_over(rail, ticket, depth, last ? deadline : Clock::now() + left / 2);
      if (lane) {
        rails_->plan().set_up(rail.peer.host(), Clock::now());
        addresses_.push_back(rail.peer.host());
        return lane;
      }
      log::debug("rdma: no lane from {} to {}: {}", rail.shown->device, rail.shown->address,
                 lane.error().message());
      rails_->set_failed(rail, lane.error().code() == Code::kUnsupported);
    }
    return lane;
  }
  Result<std::unique_ptr<Lane>> open_lane_over(const ClientRail& rail, const LaneTicket& ticket,
                                               std::uint32_t depth, Deadline deadline) {
    return rdma::connect_past_stale(deadline, [&](bool& stale) {
      return open_lane_once(rail, ticket, depth, deadline, stale);
    });
  }
  Result<std::unique_ptr<Lane>> open_lane_once(const ClientRail& rail, const LaneTicket& ticket,
                                               std::uint32_t depth, Deadline deadline,
                                               bool& stale) {
    const verbs::ProtectionDomain domain = rail.domain->domain();
    if (domain.empty()) return gone();
    const verbs::Device& device = domain.device();
    const std::uint32_t depth_max = std::min(depth, device.attributes().max_qp_wr);
    verbs::ConnectorOptions route = rdma::route_options(settings_);
    route.source = rail.source;
    auto connector = rail.source
                         ? verbs::Connector::resolve(rail.peer, deadline, route)
                         : rdma::resolve_over(rail.domain->device(), rail.peer, deadline, route);
    if (!connector) return connector.error();
    if (!(connector->device() == device))
      return Error{Code::kConnectionLost, "lane on another device than its session"};
    auto port = device.query_port(connector->port());
    if (!port) return port.error();
    // When the lane breaks, each request can have a completion of its own, signaled or not.
    auto queue = device.create_completion_queue(
        {.depth = depth_max, .events = true, .vector = rdma::next_completion_vector(device)});
    if (!queue) return queue.error();
    verbs::QueuePairBuilder<verbs::Rc> builder{rdma::thread_domain(domain), *queue, *queue};
    builder.receive_depth(1)
        .rnr_retry_count(7)  // retries without end: the operation's deadline ends the wait
        .access(verbs::Access::kNone);
    if (auto status = rdma::apply(settings_, device, connector->port(), builder); !status)
      return status.error();
    rdma::limit_depths(builder, rdma::Asks::kClient, true);
    const auto fits = rdma::create_fitting_pair(
        builder, depth_max, [&](const auto& asked) { return connector->create_queue_pair(asked); });
    if (!fits) return fits.error();
    if (rail.shown != nullptr &&
        connector->queue_pair().capabilities().inline_bytes < rdma::kRailInlineBytes)
      return Error{Code::kUnsupported, "rails: a device without inline room; make lane_depth less"}
          .with_subject(device.name());
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
    constexpr std::uint32_t kMaxTransferBytes = 1U << 20U;
    return keep_lane(rail, std::move(*connection), std::move(*queue),
                     std::min(port->max_message_bytes, kMaxTransferBytes), *fits, said.lane);
  }
  /// Makes the lane of a connection that the server has accepted.
  Result<std::unique_ptr<Lane>> keep_lane(const ClientRail& rail, verbs::Connection connection,
                                          verbs::CompletionQueue queue,
                                          std::uint32_t transfer_bytes_max, std::uint32_t depth,
                                          std::optional<std::uint32_t> number) {
    const std::uint32_t initiator_depth = connection.initiator_depth();
    auto shared = std::make_shared<LaneConnection>(events_, rail.peer, std::move(connection));
    if (auto status = shared->watch(); !status) return status.error();
    {
      const remora::detail::MutexLock lock{mutex_};
      lanes_.push_back(shared);
    }
    rdma::LanePair pair{
        .pair = shared->queue_pair(),
        .to_error = [shared] { shared->to_error(); },
        .destroy = [shared] { shared->destroy(); },
        .close_later = [shared, domain = rail.domain] { shared->close_later(*domain); },
        .drop_later = [domain = rail.domain](
                          std::shared_ptr<void> left) { domain->reaper().take(std::move(left)); }};
    auto lane =
        number && rail.shown != nullptr
            ? rdma::make_rail_lane(std::move(pair), std::move(queue), transfer_bytes_max, depth,
                                   {.remote = keys_,
                                    .lane = *number,
                                    .local = rails_->memory()->keys(),
                                    .column = rail.column},
                                   rail.shown, initiator_depth)
        : number ? rdma::make_token_lane(std::move(pair), std::move(queue), transfer_bytes_max,
                                         depth, keys_, *number, initiator_depth)
                 : rdma::make_lane(std::move(pair), std::move(queue), transfer_bytes_max, depth,
                                   initiator_depth);
    if (lane) ++lanes_opened_;
    return lane;
  }
  Status use_lane_keys(std::shared_ptr<RkeyTable> keys) noexcept override {
    static_assert(rdma::kMaxLanes <= RkeyTable::kMaxLanes);
    keys_ = std::move(keys);
    return {};
  }

  [[nodiscard]] ConnectionRails* rails() noexcept override {
    return rails_ != nullptr ? this : nullptr;
  }
  void learn_rails(const std::string& device, const std::vector<RailAddress>& told) override {
    rails_->plan().learn({{.address = peer_.host(), .device = device}});
    rails_->plan().learn(told);
  }
  std::size_t find_rails(Deadline deadline) override {
    return keys_ == nullptr ? 1 : rails_->find(deadline);
  }
  bool leave_rail_of(std::size_t lane) override {
    if (lane >= addresses_.size()) return false;
    rails_->plan().leave_out(addresses_[lane]);
    return true;
  }
  bool leave_other_server() override {
    if (rails_->plan().is_first(peer_.host())) return false;
    rails_->plan().leave_out(peer_.host());
    return true;
  }
  void rail_failed(std::size_t lane) override {
    if (lane < addresses_.size()) rails_->plan().set_failed(addresses_[lane], Clock::now());
  }
  [[nodiscard]] bool rail_returned() const noexcept override {
    return rails_->plan().any_answered();
  }
  [[nodiscard]] std::shared_ptr<MemoryDomain> memory_domain() const noexcept override {
    if (rails_ != nullptr) return rails_->memory();
    return domain_;
  }
  Result<AttachedGrant> attach(std::vector<WireExtent> extents,
                               std::vector<UniqueFd> /*descriptors*/,
                               Rights /*rights*/) noexcept override {
    return AttachedGrant{.extents = std::move(extents), .hold = nullptr};
  }
  void flush(Deadline deadline) noexcept override {
    const remora::detail::MutexLock lock{sending_};
    if (channel_) channel_->buffers.flush(channel_->connection.queue_pair(), deadline);
  }
  void shutdown() noexcept override {
    const remora::detail::MutexLock lock{mutex_};
    if (channel_) (void)channel_->connection.disconnect();
  }

 private:
  [[nodiscard]] static Error gone() noexcept {
    return Error{Code::kConnectionLost, "RDMA device"}.with_reason(Reason::kPeerGone);
  }
  /// Called by the thread that receives. The lanes end by themselves, when the session is
  /// interrupted.
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
    // Lanes first: the end of a lane tells which rail has failed.
    Status status;
    for (const auto& lane : lanes_) {
      const remora::detail::MutexLock lane_lock{lane->mutex};
      if (!lane->connection) continue;
      if (auto checked = check(*lane->connection, lane->peer); !checked && status) status = checked;
    }
    if (!status) return status;
    return check(channel_->connection, peer_);
  }
  /// Takes the events of `connection`; returns an error when one of them has ended it.
  [[nodiscard]] Status check(verbs::Connection& connection,
                             const verbs::Address& peer) const noexcept {
    while (true) {
      auto event = connection.next_event();
      if (!event) return event.error();
      if (const auto& failure = connection.failure()) {
        // A server that ends a session disconnects all of its lanes, so a disconnect does not tell
        // which rail has failed.
        if (rails_ != nullptr && failure->kind != verbs::ConnectionEvent::Kind::kDisconnected)
          rails_->plan().set_failed(peer.host(), Clock::now());
        return failure->error(peer);
      }
      if (!event->has_value()) return {};
    }
  }

  std::shared_ptr<ClientDomain> domain_;
  const std::string device_;  ///< of the control channel
  std::shared_ptr<FdSet> events_;
  verbs::Address peer_;
  const config::RdmaSettings settings_;
  const std::unique_ptr<ClientRails> rails_;
  /// Held while a message is sent. Not on the data path.
  remora::detail::Mutex sending_ REMORA_ACQUIRED_BEFORE(mutex_);
  remora::detail::Mutex mutex_;
  /// Empty after leave_device(). The thread that receives reads it without a mutex, and changes it
  /// with both mutexes; its events are taken, and it is disconnected, with mutex_ held.
  std::optional<ControlRemains> channel_;
  std::vector<std::shared_ptr<LaneConnection>> lanes_ REMORA_GUARDED_BY(mutex_);
  /// Null: one key for all lanes. Used, as lanes_opened_, by the thread that opens lanes.
  std::shared_ptr<RkeyTable> keys_;
  std::uint32_t lanes_opened_ = 0;
  std::vector<std::string> addresses_;  ///< the server's address of each lane; with rails
};

/// The time-out of a step of connecting, with its reason where verbs/ gives none.
Error timed_out_as(const Error& error, Reason reason) noexcept {
  const bool bare = error.code() == Code::kTimedOut && error.reason() == Reason::kNone;
  return bare ? error.with_reason(reason) : error;
}

ClientRails::Options rails_options(const ConnectOptions& options, std::uint16_t port) {
  return {.route = rdma::route_options(options.rdma),
          .port = port,
          .hardware_only = options.hardware_only};
}

/// `held`: the memory of the session that connects again, if it may continue over another device;
/// otherwise null.
Result<std::unique_ptr<ClientEndpoint>> connect_by(ClientRails::Route route,
                                                   const verbs::Address& peer,
                                                   const ConnectOptions& options,
                                                   const std::shared_ptr<ClientDomain>& held,
                                                   Deadline deadline, bool& stale) {
  verbs::Connector& connector = route.connector;
  const verbs::Device device = connector.device();  // a copy: connect() spends the connector
  if (options.hardware_only && device.is_software())
    return Error{Code::kUnsupported, "software RDMA device, used only with ?transport=rdma"}
        .with_subject(device.name());
  if (auto why = rdma::why_unusable(device))
    return Error{Code::kUnsupported, "rdma"}.with_subject(std::string{device.name()} + ": " + *why);
  const auto moves =
      options.domain != nullptr ? ClientDomain::Moves::kYes : ClientDomain::Moves::kNo;
  auto domain = held != nullptr ? Result<std::shared_ptr<ClientDomain>>{held}
                                : ClientDomain::of(device, peer, moves);
  if (!domain) return domain.error();
  // As the device has returned, its memory is registered before the server waits for a hello.
  if (held != nullptr && held->device() == device.name())
    if (auto status = held->move_to(device); !status) return status.error();
  auto rails = ClientRails::of_connection(options.rails, *domain, peer, route.source,
                                          rails_options(options, peer.port()));
  if (!rails) return rails.error();
  const auto memory = (*domain)->domain_of_channel(device, held != nullptr);
  if (!memory) return memory.error();
  auto buffers = ControlBuffers::create(*memory);
  if (!buffers) return buffers.error();
  auto builder = buffers->builder();
  if (auto status = rdma::apply(options.rdma, device, connector.port(), builder); !status)
    return status.error();
  if (auto status = connector.create_queue_pair(builder); !status) return status.error();
  if (auto status = buffers->post_receives(connector.queue_pair()); !status) return status.error();
  auto events = FdSet::create();
  if (!events) return events.error();
  const int device_events = memory->device().raw()->async_fd;
  const auto introduction = Introduction{.mtu_bytes = options.rdma.mtu.value_or(0)}.to_wire();
  auto connection = connector.connect(deadline, {.private_data = introduction});
  stale = connector.answer() && connector.answer()->stale();
  if (!connection)
    return timed_out_as(rdma::told_by_server(connector, connection.error()), Reason::kSilent);
  for (const int fd : {buffers->event_fd(), connection->event_fd(), device_events})
    if (auto status = events->add(fd); !status) return status.error();
  // Another device is known to reach the server now. If registering takes longer than the server
  // waits for a hello, the next attempt finds the memory here.
  if (held != nullptr)
    if (auto status = held->move_to(device); !status) return status.error();
  if (options.domain != nullptr) options.domain->set(*domain, (*domain)->device());
  return std::unique_ptr<ClientEndpoint>{std::make_unique<RdmaClientEndpoint>(
      std::move(*domain), std::move(*buffers), std::move(*connection),
      std::make_shared<FdSet>(std::move(*events)), peer, options.rdma, std::move(*rails))};
}

Result<std::unique_ptr<ClientEndpoint>> connect_to(const verbs::Address& peer,
                                                   const ConnectOptions& options, Deadline deadline,
                                                   bool& stale) {
  auto connector =
      rdma::resolve_over(options.device, peer, deadline, rdma::route_options(options.rdma));
  if (!connector) return timed_out_as(connector.error(), Reason::kUnreachable);
  return connect_by({.connector = std::move(*connector)}, peer, options, nullptr, deadline, stale);
}

/// Connects a session again whose memory is `memory`. When its device has gone, tries each device
/// that reaches the server, the host's route first. An attempt has half of the time that is left,
/// and the last attempt all of it.
Result<std::unique_ptr<ClientEndpoint>> connect_again(const std::shared_ptr<ClientDomain>& memory,
                                                      const verbs::Address& peer,
                                                      const ConnectOptions& options,
                                                      Deadline deadline) {
  memory->look();
  const ClientRails::Options how = rails_options(options, peer.port());
  std::vector<std::string> tried;
  Result<std::unique_ptr<ClientEndpoint>> endpoint =
      Error{Code::kUnreachable, "rdma"}.with_subject(peer.to_string());
  for (std::size_t left = rdma::devices_to_try(*memory, how); left > 0; --left) {
    const Clock::time_point now = Clock::now();
    const Deadline until = left == 1 ? deadline : now + (deadline - now) / 2;
    endpoint = rdma::connect_past_stale(
        until, [&](bool& stale) -> Result<std::unique_ptr<ClientEndpoint>> {
          auto route = rdma::route_of_session(*memory, peer, tried, until, how);
          if (!route) return timed_out_as(route.error(), Reason::kUnreachable);
          std::string device{route->connector.device().name()};
          auto made = connect_by(std::move(*route), peer, options, memory, until, stale);
          if (!made && !stale) tried.push_back(std::move(device));
          return made;
        });
    if (endpoint) return endpoint;
    log::debug("rdma: {}: {}", peer.to_string(), endpoint.error().message());
  }
  return rdma::error_of_attempt(*memory, *options.domain, peer, endpoint.error());
}

/// Tries each known address of the server, the last to answer first; then tries each address over
/// another device if the host has one, since a path may be dead although it has a route.
Result<std::unique_ptr<ClientEndpoint>> connect_over_rails(const Uri& uri,
                                                           const ConnectOptions& options,
                                                           Deadline deadline) {
  RailPlan& plan = *options.rails;
  const auto named = verbs::Address::resolve(uri.host, uri.port, deadline);
  if (named) plan.set_first(named->host());
  RailChoice choice = plan.choice();
  if (choice.devices.empty() && !options.device.empty()) choice.devices.push_back(options.device);
  const ClientRails::Options how = rails_options(options, uri.port);
  const std::vector<RailAddress> addresses = plan.in_order();
  if (addresses.empty()) return named.error();
  std::map<std::string, std::vector<std::string>> tried;  // the devices tried, by address
  const std::size_t rounds = ClientRails::usable_devices(choice, how).size() > 1 ? 2 : 1;
  Result<std::unique_ptr<ClientEndpoint>> endpoint =
      Error{Code::kUnreachable, "rails"}.with_subject(uri.host);
  for (std::size_t attempt = 0; attempt < rounds * addresses.size(); ++attempt) {
    const std::string& address = addresses[attempt % addresses.size()].address;
    std::vector<std::string>& over = tried[address];
    const auto peer = verbs::Address::parse(address, uri.port);
    if (!peer || (attempt >= addresses.size() && over.empty())) continue;
    // An attempt has half of the time that is left, and the last attempt all of it: most attempts
    // answer at once.
    const bool last = attempt + 1 == rounds * addresses.size();
    const Clock::time_point now = Clock::now();
    const Deadline until = last ? deadline : now + (deadline - now) / 2;
    endpoint = rdma::connect_past_stale(
        until, [&](bool& stale) -> Result<std::unique_ptr<ClientEndpoint>> {
          auto route = ClientRails::route_to(*peer, choice, over, until, how);
          if (!route) return timed_out_as(route.error(), Reason::kUnreachable);
          const std::string device{route->connector.device().name()};
          auto made = connect_by(std::move(*route), *peer, options, nullptr, until, stale);
          if (!made && !stale) over.push_back(device);
          return made;
        });
    if (endpoint) {
      plan.set_up(address, Clock::now());
      return endpoint;
    }
    log::debug("rdma: {}: {}", address, endpoint.error().message());
    plan.set_failed(address, Clock::now());
  }
  return endpoint;
}

}  // namespace

Result<std::unique_ptr<ClientEndpoint>> connect_rdma(const Uri& uri, const ConnectOptions& options,
                                                     Deadline deadline) {
  (void)verbs::initialize_fork_safety();
  if (options.rails != nullptr) return connect_over_rails(uri, options, deadline);
  auto peer = verbs::Address::resolve(uri.host, uri.port, deadline);
  if (!peer) return peer.error();
  if (options.domain != nullptr)
    if (const auto memory = std::dynamic_pointer_cast<ClientDomain>(options.domain->get()))
      return connect_again(memory, *peer, options, deadline);
  return rdma::connect_past_stale(
      deadline, [&](bool& stale) { return connect_to(*peer, options, deadline, stale); });
}

}  // namespace remora::transport
