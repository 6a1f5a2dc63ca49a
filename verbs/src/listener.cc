#include <algorithm>
#include <cerrno>
#include <utility>

#include <remora/verbs/listener.h>
#include <remora/verbs/teardown.h>

#include "connection_state.h"
#include "errors.h"
#include "wait.h"

namespace remora::verbs {
namespace detail {

struct ListenerState {
  detail::ProcessProvider provider;
  CmId id;
  Device device;  ///< the device of the address; empty: bound to all devices
};

}  // namespace detail

namespace {

Error listen_error(Operation operation, int number, const Address& address) {
  Code code = Code::kProvider;
  if (number == EADDRINUSE) code = Code::kAddressInUse;
  if (number == EADDRNOTAVAIL || number == ENODEV) code = Code::kNotFound;
  if (number == EACCES || number == EPERM) code = Code::kPermissionDenied;
  return Error{code, operation}.with_errno(number).with_subject(address.to_string());
}

// Moves the id of a request to an event channel of its own. The request's event has been
// acknowledged already: migrating waits for that.
Status give_channel(detail::ConnectionState& state) {
  auto channel = detail::create_event_channel(*state.provider);
  if (!channel) return channel.error();
  errno = 0;
  const int result = state.provider->migrate_id(state.id.get(), channel->get());
  if (result != 0) return detail::provider_error("rdma_migrate_id", detail::errno_of(result));
  state.id.get_deleter().channel = std::move(*channel);
  return state.find_device();
}

}  // namespace

ConnectionRequest::ConnectionRequest(std::unique_ptr<detail::ConnectionState> state,
                                     const PrivateData& private_data, std::uint8_t initiator_depth,
                                     std::uint8_t responder_depth) noexcept
    : state_{std::move(state)},
      private_data_{private_data},
      peer_initiator_depth_{initiator_depth},
      peer_responder_depth_{responder_depth} {}

ConnectionRequest::ConnectionRequest(ConnectionRequest&&) noexcept = default;

ConnectionRequest& ConnectionRequest::operator=(ConnectionRequest&& other) noexcept {
  if (this == &other) return *this;
  drop();
  state_ = std::move(other.state_);
  private_data_ = other.private_data_;
  peer_initiator_depth_ = other.peer_initiator_depth_;
  peer_responder_depth_ = other.peer_responder_depth_;
  return *this;
}

ConnectionRequest::~ConnectionRequest() { drop(); }

void ConnectionRequest::drop() noexcept {
  if (!state_) return;
  // A peer that has gone meanwhile cannot be told, which is no failure here.
  static_cast<void>(state_->provider->reject(state_->id.get(), nullptr, 0));
  state_.reset();
}

std::span<const std::byte> ConnectionRequest::private_data() const noexcept {
  return private_data_.bytes();
}
Address ConnectionRequest::peer_address() const noexcept { return state_->peer_address(); }
Address ConnectionRequest::local_address() const noexcept { return state_->local_address(); }
const Device& ConnectionRequest::device() const noexcept { return state_->device; }
std::uint8_t ConnectionRequest::port() const noexcept { return state_->id->port_num; }
int ConnectionRequest::event_fd() const noexcept { return state_->event_fd(); }
rdma_cm_id* ConnectionRequest::raw() const noexcept { return state_->id.get(); }

Status ConnectionRequest::create_queue_pair(const QueuePairBuilder<Rc>& builder) {
  if (!state_) return Error{Code::kClosed, "ibv_create_qp"};
  const Status created = state_->create_queue_pair(builder);
  if (!created) return created;
  // The number of reads that the peer serves limits the reads of this side in flight, and the
  // reverse.
  state_->initiator_depth = std::min(state_->initiator_depth, peer_responder_depth_);
  state_->responder_depth = std::min(state_->responder_depth, peer_initiator_depth_);
  return {};
}
QueuePair<Rc>& ConnectionRequest::queue_pair() noexcept { return *state_->pair; }

Result<Connection> ConnectionRequest::accept(const ConnectionOptions& options) && {
  if (!state_) return Error{Code::kClosed, "rdma_accept"};
  if (const Status accepted = state_->accept(options); !accepted) {
    drop();
    return accepted.error();
  }
  return Connection{std::move(state_)};
}

Result<Connection> ConnectionRequest::accept(Deadline deadline,
                                             const ConnectionOptions& options) && {
  auto connection = std::move(*this).accept(options);
  if (!connection) return connection;
  if (const Status ready = connection->wait_established(deadline); !ready) return ready.error();
  return connection;
}

Status ConnectionRequest::reject(std::span<const std::byte> private_data) && {
  if (!state_) return Error{Code::kClosed, "rdma_reject"};
  if (const Status checked =
          detail::check_private_data(private_data, kMaxRejectDataBytes, "rdma_reject");
      !checked) {
    drop();
    return checked;
  }
  const auto state = std::move(state_);
  errno = 0;
  const int result = state->provider->reject(state->id.get(), private_data.data(),
                                             static_cast<std::uint8_t>(private_data.size()));
  if (result != 0) return detail::provider_error("rdma_reject", detail::errno_of(result));
  return {};
}

WaitingRequest::WaitingRequest(std::unique_ptr<detail::ConnectionState> state,
                               const PrivateData& private_data, std::uint8_t initiator_depth,
                               std::uint8_t responder_depth) noexcept
    : state_{std::move(state)},
      private_data_{private_data},
      peer_initiator_depth_{initiator_depth},
      peer_responder_depth_{responder_depth} {}
WaitingRequest::WaitingRequest(WaitingRequest&&) noexcept = default;
WaitingRequest& WaitingRequest::operator=(WaitingRequest&& other) noexcept {
  if (this == &other) return *this;
  drop();
  state_ = std::move(other.state_);
  private_data_ = other.private_data_;
  peer_initiator_depth_ = other.peer_initiator_depth_;
  peer_responder_depth_ = other.peer_responder_depth_;
  return *this;
}
WaitingRequest::~WaitingRequest() { drop(); }

void WaitingRequest::drop() noexcept {
  if (!state_) return;
  // A peer that has gone meanwhile cannot be told, which is no failure here.
  static_cast<void>(state_->provider->reject(state_->id.get(), nullptr, 0));
  state_.reset();
}

std::span<const std::byte> WaitingRequest::private_data() const noexcept {
  return private_data_.bytes();
}
std::string_view WaitingRequest::device_name() const noexcept {
  return state_->id->verbs->device->name;
}

bool WaitingRequest::withdrawn() const noexcept {
  // The kernel has the attributes for the step to RTR as long as the request can be accepted. It
  // reports no event about a request before that was accepted.
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  int mask = 0;
  return state_->provider->init_qp_attr(state_->id.get(), &attributes, &mask) != 0;
}

Result<ConnectionRequest> WaitingRequest::take() && {
  if (!state_) return Error{Code::kClosed, "rdma_migrate_id"};
  auto state = std::move(state_);
  if (const Status given = give_channel(*state); !given) return given.error();
  return ConnectionRequest{std::move(state), private_data_, peer_initiator_depth_,
                           peer_responder_depth_};
}

ConnectionListener::ConnectionListener(std::unique_ptr<detail::ListenerState> state) noexcept
    : state_{std::move(state)} {}
ConnectionListener::ConnectionListener(ConnectionListener&&) noexcept = default;
ConnectionListener& ConnectionListener::operator=(ConnectionListener&&) noexcept = default;
ConnectionListener::~ConnectionListener() = default;

Result<ConnectionListener> ConnectionListener::bind(const Address& address, int backlog,
                                                    const Provider& provider) {
  auto id = detail::create_id(provider);
  if (!id) return id.error();
  errno = 0;
  int result = provider.bind_addr(id->get(), const_cast<sockaddr*>(address.raw()));
  if (result != 0) return listen_error("rdma_bind_addr", detail::errno_of(result), address);
  errno = 0;
  result = provider.listen(id->get(), backlog);
  if (result != 0) return listen_error("rdma_listen", detail::errno_of(result), address);
  Device device;
  if ((*id)->verbs != nullptr) {
    auto found = Device::borrow((*id)->verbs, provider);
    if (!found) return found.error();
    device = std::move(*found);
  }
  return ConnectionListener{std::make_unique<detail::ListenerState>(
      detail::ListenerState{&provider, std::move(*id), std::move(device)})};
}

int ConnectionListener::event_fd() const noexcept { return state_->id.get_deleter().channel->fd; }
Address ConnectionListener::local_address() const noexcept {
  return Address::from(&state_->id->route.addr.src_addr);
}
const Device& ConnectionListener::device() const noexcept { return state_->device; }
rdma_cm_id* ConnectionListener::raw() const noexcept { return state_->id.get(); }

Result<std::optional<WaitingRequest>> ConnectionListener::next_waiting() {
  for (;;) {
    const auto event =
        detail::take_event(*state_->provider, state_->id.get_deleter().channel.get());
    if (!event) return event.error();
    if (!event->has_value()) return std::optional<WaitingRequest>{};
    const detail::CmEvent& told = **event;
    if (told.type == RDMA_CM_EVENT_DEVICE_REMOVAL && !state_->device.empty())
      state_->device.mark_gone();
    if (told.type == RDMA_CM_EVENT_DEVICE_REMOVAL)
      return Error{Code::kProvider, "rdma_get_cm_event"}.with_errno(ENODEV).with_subject(
          local_address().to_string());
    if (told.type != RDMA_CM_EVENT_CONNECT_REQUEST) continue;
    // Owned from here on, with the listener's channel: the destruction of the id rejects the peer.
    detail::CmId id{told.id,
                    detail::DestroyId{&*state_->provider, state_->id.get_deleter().channel}};
    auto state = std::make_unique<detail::ConnectionState>(*state_->provider, std::move(id));
    state->passive = true;
    // The kernel reports both depths from this side: the reads that this side is asked to serve are
    // those that the peer will have in flight.
    return std::optional{WaitingRequest{std::move(state), told.private_data,
                                        told.parameters.responder_resources,
                                        told.parameters.initiator_depth}};
  }
}

Result<std::optional<ConnectionRequest>> ConnectionListener::next_request() {
  auto waiting = next_waiting();
  if (!waiting) return waiting.error();
  if (!waiting->has_value()) return std::optional<ConnectionRequest>{};
  auto request = std::move(**waiting).take();
  if (!request) return request.error();
  return std::optional{std::move(*request)};
}

Result<ConnectionRequest> ConnectionListener::wait_request(Deadline deadline) {
  for (;;) {
    auto request = next_request();
    if (!request) return request.error();
    if (request->has_value()) return std::move(**request);
    if (const Status ready = detail::wait_readable(event_fd(), deadline); !ready) {
      if (ready.error().code() != Code::kTimedOut) return ready.error();
      return Error{Code::kTimedOut, "rdma_get_cm_event"}.with_subject(local_address().to_string());
    }
  }
}

}  // namespace remora::verbs
