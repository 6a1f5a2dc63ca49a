#include <cerrno>
#include <utility>

#include <remora/verbs/connector.h>

#include "connection_state.h"
#include "errors.h"
#include "wait.h"

namespace remora::verbs {
namespace {

Error unreachable(Operation operation, int number, const Address& peer) {
  const Code code = number == ETIMEDOUT ? Code::kTimedOut : Code::kUnreachable;
  return Error{code, operation}.with_errno(number).with_subject(peer.to_string());
}

// Waits for one step's event. The kernel's own time-out comes as an event too.
Status wait_for(detail::ConnectionState& state, rdma_cm_event_type wanted, Operation operation,
                Deadline deadline) {
  for (;;) {
    const auto event = detail::take_event(*state.provider, state.id.get_deleter().channel.get());
    if (!event) return event.error();
    if (event->has_value()) {
      if ((*event)->type == wanted) return {};
      const int status = (*event)->status;
      return unreachable(operation, status < 0 ? -status : EHOSTUNREACH, state.peer);
    }
    if (const Status ready = detail::wait_readable(state.event_fd(), deadline); !ready) {
      if (ready.error().code() != Code::kTimedOut) return ready;
      return Error{Code::kTimedOut, operation}.with_subject(state.peer.to_string());
    }
  }
}

Status resolve_address(detail::ConnectionState& state, const ConnectorOptions& options,
                       Deadline deadline) {
  sockaddr* const source = options.source ? const_cast<sockaddr*>(options.source->raw()) : nullptr;
  errno = 0;
  const int result =
      state.provider->resolve_addr(state.id.get(), source, const_cast<sockaddr*>(state.peer.raw()),
                                   detail::milliseconds_left(deadline, 1));
  if (result != 0) {
    // No route, or no device on the way there: both are a matter of reaching the peer.
    return unreachable("rdma_resolve_addr", detail::errno_of(result), state.peer);
  }
  return wait_for(state, RDMA_CM_EVENT_ADDR_RESOLVED, "rdma_resolve_addr", deadline);
}

Status set_ack_timeout(detail::ConnectionState& state, std::uint8_t timeout) {
  if (timeout > 31)
    return Error{Code::kInvalidArgument, "rdma_set_option"}
        .with_subject("ack_timeout")
        .with_limit(timeout, 31);
  errno = 0;
  const int result = state.provider->set_option(
      state.id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout));
  if (result != 0) return detail::provider_error("rdma_set_option", detail::errno_of(result));
  return {};
}

Status resolve_route(detail::ConnectionState& state, Deadline deadline) {
  errno = 0;
  const int result =
      state.provider->resolve_route(state.id.get(), detail::milliseconds_left(deadline, 1));
  if (result != 0) return unreachable("rdma_resolve_route", detail::errno_of(result), state.peer);
  return wait_for(state, RDMA_CM_EVENT_ROUTE_RESOLVED, "rdma_resolve_route", deadline);
}

}  // namespace

Connector::Connector(std::unique_ptr<detail::ConnectionState> state) noexcept
    : state_{std::move(state)} {}
Connector::Connector(Connector&&) noexcept = default;
Connector& Connector::operator=(Connector&&) noexcept = default;
Connector::~Connector() = default;

Result<Connector> Connector::resolve(const Address& peer, Deadline deadline,
                                     const ConnectorOptions& options, const Provider& provider) {
  auto id = detail::create_id(provider);
  if (!id) return id.error();
  auto state = std::make_unique<detail::ConnectionState>(provider, std::move(*id));
  state->peer = peer;
  if (options.ack_timeout)
    if (const Status set = set_ack_timeout(*state, *options.ack_timeout); !set) return set.error();
  if (const Status found = resolve_address(*state, options, deadline); !found) return found.error();
  if (const Status found = resolve_route(*state, deadline); !found) return found.error();
  if (const Status found = state->find_device(); !found) return found.error();
  return Connector{std::move(state)};
}

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
