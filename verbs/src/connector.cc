#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include <remora/verbs/connector.h>

#include "connection_state.h"
#include "errors.h"
#include "wait.h"

namespace remora::verbs {
namespace {

/// The kernel sends three ARP requests in three seconds, and then none until the time-out. Only a
/// new attempt finds a peer that returns later.
constexpr std::chrono::seconds kAttempt{2};

int attempt_ms(Deadline deadline) noexcept {
  return detail::milliseconds_left(
      std::min<Deadline>(deadline, std::chrono::steady_clock::now() + kAttempt), 1);
}

Error unreachable(Operation operation, int number, const Address& peer) {
  if (number == detail::kForkedErrno) return detail::provider_error(operation, number);
  const Code code = number == ETIMEDOUT ? Code::kTimedOut : Code::kUnreachable;
  return Error{code, operation}.with_errno(number).with_subject(peer.to_string());
}

Status resolve_address(detail::ConnectionState& state, const std::optional<Address>& from,
                       Deadline deadline) {
  sockaddr* const source = from ? const_cast<sockaddr*>(from->raw()) : nullptr;
  errno = 0;
  const int result = state.provider->resolve_addr(
      state.id.get(), source, const_cast<sockaddr*>(state.peer.raw()), attempt_ms(deadline));
  if (result != 0) {
    // No route, or no device on the route: both mean that the peer is unreachable.
    return unreachable("rdma_resolve_addr", detail::errno_of(result), state.peer);
  }
  return {};
}

Status set_option(detail::ConnectionState& state, int option, std::uint8_t value) {
  errno = 0;
  const int result =
      state.provider->set_option(state.id.get(), RDMA_OPTION_ID, option, &value, sizeof(value));
  if (result != 0) return detail::provider_error("rdma_set_option", detail::errno_of(result));
  return {};
}

/// Sets the options that the kernel uses when it resolves the route.
Status set_options(detail::ConnectionState& state, const ConnectorOptions& options) {
  if (options.ack_timeout.value_or(0) > 31)
    return Error{Code::kInvalidArgument, "rdma_set_option"}
        .with_subject("ack_timeout")
        .with_limit(*options.ack_timeout, 31);
  Status set;
  if (options.ack_timeout)
    set = set_option(state, RDMA_OPTION_ID_ACK_TIMEOUT, *options.ack_timeout);
  if (set && options.traffic_class)
    set = set_option(state, RDMA_OPTION_ID_TOS, *options.traffic_class);
  return set;
}

Status resolve_route(detail::ConnectionState& state, Deadline deadline) {
  errno = 0;
  const int result = state.provider->resolve_route(state.id.get(), attempt_ms(deadline));
  if (result != 0) return unreachable("rdma_resolve_route", detail::errno_of(result), state.peer);
  return {};
}

}  // namespace

Connector::Connector(std::unique_ptr<detail::ConnectionState> state) noexcept
    : state_{std::move(state)} {}
Connector::Connector(Connector&&) noexcept = default;
Connector& Connector::operator=(Connector&&) noexcept = default;
Connector::~Connector() = default;

Resolver::Resolver(std::unique_ptr<detail::ConnectionState> state,
                   const std::optional<Address>& source, Deadline deadline) noexcept
    : state_{std::move(state)}, source_{source}, deadline_{deadline} {}
Resolver::Resolver(Resolver&&) noexcept = default;
Resolver& Resolver::operator=(Resolver&&) noexcept = default;
Resolver::~Resolver() = default;

int Resolver::event_fd() const noexcept { return state_ ? state_->event_fd() : -1; }
rdma_cm_id* Resolver::raw() const noexcept { return state_ ? state_->id.get() : nullptr; }

Result<Resolver> Resolver::start(const Address& peer, Deadline deadline,
                                 const ConnectorOptions& options, const Provider& provider) {
  auto id = detail::create_id(provider);
  if (!id) return id.error();
  auto state = std::make_unique<detail::ConnectionState>(provider, std::move(*id));
  state->peer = peer;
  if (const Status set = set_options(*state, options); !set) return set.error();
  if (const Status asked = resolve_address(*state, options.source, deadline); !asked)
    return asked.error();
  return Resolver{std::move(state), options.source, deadline};
}

Result<std::optional<Connector>> Resolver::advance() {
  if (!state_) return Error{Code::kClosed, "Resolver::advance"};
  auto connector = step();
  if (!connector) state_.reset();
  return connector;
}

Result<std::optional<Connector>> Resolver::step() {
  // Constants: clang 14 crashes on consteval temporaries in a conditional.
  constexpr Operation kRoute{"rdma_resolve_route"};
  constexpr Operation kAddress{"rdma_resolve_addr"};
  const Operation operation = address_known_ ? kRoute : kAddress;
  const auto event = detail::take_event(*state_->provider, state_->id.get_deleter().channel.get());
  if (!event) return event.error();
  if (!event->has_value()) {
    if (std::chrono::steady_clock::now() < deadline_) return std::optional<Connector>{};
    return Error{Code::kTimedOut, operation}.with_subject(state_->peer.to_string());
  }
  // The kernel reports its own time-out as an event, too.
  if ((*event)->type !=
      (address_known_ ? RDMA_CM_EVENT_ROUTE_RESOLVED : RDMA_CM_EVENT_ADDR_RESOLVED)) {
    const int status = (*event)->status;
    if (status != -ETIMEDOUT || std::chrono::steady_clock::now() >= deadline_)
      return unreachable(operation, status < 0 ? -status : EHOSTUNREACH, state_->peer);
    const Status asked = address_known_ ? resolve_route(*state_, deadline_)
                                        : resolve_address(*state_, source_, deadline_);
    if (!asked) return asked.error();
    return std::optional<Connector>{};
  }
  if (!address_known_) {
    address_known_ = true;
    if (const Status asked = resolve_route(*state_, deadline_); !asked) return asked.error();
    return std::optional<Connector>{};
  }
  if (const Status found = state_->find_device(); !found) return found.error();
  return std::optional{Connector{std::move(state_)}};
}

Result<Connector> Connector::resolve(const Address& peer, Deadline deadline,
                                     const ConnectorOptions& options, const Provider& provider) {
  auto resolver = Resolver::start(peer, deadline, options, provider);
  if (!resolver) return resolver.error();
  for (;;) {
    auto connector = resolver->advance();
    if (!connector) return connector.error();
    if (connector->has_value()) return std::move(**connector);
    const Status ready = detail::wait_readable(resolver->event_fd(), deadline);
    if (!ready && ready.error().code() != Code::kTimedOut) return ready.error();
  }
}

rdma_cm_id* Connector::raw() const noexcept { return state_ ? state_->id.get() : nullptr; }
const Device& Connector::device() const noexcept { return state_->device; }
std::uint8_t Connector::port() const noexcept { return state_->id->port_num; }
Gid Connector::local_gid() const noexcept {
  return Gid::from(state_->id->route.addr.addr.ibaddr.sgid);
}
Gid Connector::peer_gid() const noexcept {
  return Gid::from(state_->id->route.addr.addr.ibaddr.dgid);
}
Address Connector::local_address() const noexcept { return state_->local_address(); }
Address Connector::peer_address() const noexcept { return state_->peer_address(); }

Status Connector::create_queue_pair(const QueuePairBuilder<Rc>& builder) {
  if (!state_) return Error{Code::kClosed, "ibv_create_qp"};
  return state_->create_queue_pair(builder);
}
QueuePair<Rc>& Connector::queue_pair() noexcept { return *state_->pair; }

Result<Connection> Connector::start_connect(const ConnectionOptions& options) {
  if (!state_) return Error{Code::kClosed, "rdma_connect"};
  if (const Status started = state_->connect(options); !started) return started.error();
  return Connection{std::move(state_)};
}

Result<Connection> Connector::connect(Deadline deadline, const ConnectionOptions& options) {
  auto connection = start_connect(options);
  if (!connection) return connection;
  detail::ConnectionState& state = *connection->state_;
  for (;;) {
    const auto event = state.wait_event(deadline);
    if (!event) return event.error();
    answer_ = *event;
    if (state.established) return connection;
    if (state.failure) return state.failure->error(state.peer_address());
  }
}

}  // namespace remora::verbs
