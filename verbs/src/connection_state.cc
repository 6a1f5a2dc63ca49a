#include "connection_state.h"

#include <algorithm>
#include <atomic>
#include <cerrno>

#include <remora/verbs/teardown.h>

#include "errors.h"
#include "net_namespace.h"
#include "queue_pair_limits.h"
#include "wait.h"

namespace remora::verbs::detail {
namespace {

using Kind = ConnectionEvent::Kind;

Kind kind_of(rdma_cm_event_type type) noexcept {
  switch (type) {
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
    case RDMA_CM_EVENT_ESTABLISHED: return Kind::kEstablished;
    case RDMA_CM_EVENT_REJECTED: return Kind::kRejected;
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR: return Kind::kUnreachable;
    case RDMA_CM_EVENT_CONNECT_ERROR: return Kind::kConnectError;
    case RDMA_CM_EVENT_DISCONNECTED: return Kind::kDisconnected;
    case RDMA_CM_EVENT_DEVICE_REMOVAL: return Kind::kDeviceRemoved;
    case RDMA_CM_EVENT_ADDR_CHANGE: return Kind::kAddressChanged;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT: return Kind::kTimeWaitExit;
    default: return Kind::kOther;
  }
}

bool ends_connection(Kind kind) noexcept {
  switch (kind) {
    case Kind::kRejected:
    case Kind::kUnreachable:
    case Kind::kConnectError:
    case Kind::kDisconnected:
    case Kind::kDeviceRemoved: return true;
    default: return false;
  }
}

}  // namespace

void DestroyId::operator()(rdma_cm_id* id) const noexcept {
  const int result = provider->destroy_id(id);
  if (result != 0) report_teardown_failure(provider_error("rdma_destroy_id", errno_of(result)));
}

namespace {

/// Whether librdmacm has opened its devices in a parent process: it opens each device once in a
/// process, so a child of fork(2) has those of its parent, and new ids would use the parent's
/// doorbells, which drivers do not map in a child.
bool is_of_parent(const Provider& provider) noexcept {
  static std::atomic<std::uint32_t> first{0};
  if (&provider != &Provider::system()) return false;
  std::uint32_t process = 0;
  const std::uint32_t here = remora::detail::made_here();
  return !first.compare_exchange_strong(process, here) && process != here;
}

}  // namespace

Result<std::shared_ptr<rdma_event_channel>> create_event_channel(const Provider& provider) {
  if (is_of_parent(provider))
    return Error{Code::kUnsupported, "rdma_create_event_channel"}
        .with_subject("a parent process has used librdmacm")
        .with_reason(Reason::kForked);
  errno = 0;
  rdma_event_channel* const raw = provider.create_event_channel();
  if (raw == nullptr) {
    const int number = errno_of(-1);
    if (number == ENODEV)
      return no_device(provider, "rdma_create_event_channel").with_errno(number);
    if (number == ENOENT)
      return Error{Code::kNotFound, "rdma_create_event_channel"}.with_errno(number);
    return provider_error("rdma_create_event_channel", number);
  }
  std::shared_ptr<rdma_event_channel> channel{raw, DestroyChannel{&provider}};
  if (const Status set = make_non_blocking(raw->fd); !set) return set.error();
  return channel;
}

Result<CmId> create_id(const Provider& provider) {
  auto channel = create_event_channel(provider);
  if (!channel) return channel.error();
  rdma_cm_id* raw = nullptr;
  errno = 0;
  const int result = provider.create_id(channel->get(), &raw, nullptr, RDMA_PS_TCP);
  if (result != 0) return provider_error("rdma_create_id", errno_of(result));
  return CmId{raw, DestroyId{&provider, std::move(*channel)}};
}

Result<std::optional<CmEvent>> take_event(const Provider& provider, rdma_event_channel* channel) {
  rdma_cm_event* raw = nullptr;
  errno = 0;
  if (const int result = provider.get_cm_event(channel, &raw); result != 0) {
    const int number = errno_of(result);
    if (number == EAGAIN || number == EINTR) return std::optional<CmEvent>{};
    return provider_error("rdma_get_cm_event", number);
  }
  CmEvent event;
  event.type = raw->event;
  event.status = raw->status;
  event.id = raw->id;
  event.parameters = raw->param.conn;
  event.private_data = PrivateData{raw->param.conn.private_data, raw->param.conn.private_data_len};
  event.parameters.private_data = nullptr;
  // Only a null event could fail here.
  if (const int result = provider.ack_cm_event(raw); result != 0)
    report_teardown_failure(provider_error("rdma_ack_cm_event", errno_of(result)));
  return std::optional{event};
}

Status check_private_data(std::span<const std::byte> bytes, std::size_t max_bytes,
                          Operation operation) {
  if (bytes.size() <= max_bytes) return {};
  return Error{Code::kLimitExceeded, operation}
      .with_subject("private data")
      .with_limit(bytes.size(), max_bytes);
}

Status ConnectionState::find_device() {
  auto found = Device::borrow(id->verbs, *provider);
  if (!found) return found.error();
  device = std::move(*found);
  return {};
}

Address ConnectionState::local_address() const noexcept {
  return Address::from(&id->route.addr.src_addr);
}

Address ConnectionState::peer_address() const noexcept {
  return id->route.addr.dst_addr.sa_family == 0 ? peer : Address::from(&id->route.addr.dst_addr);
}

Status ConnectionState::create_queue_pair(const QueuePairBuilder<Rc>& builder) {
  if (pair) return Error{Code::kAlreadyExists, "ibv_create_qp"};
  if (builder.domain().empty() || !(builder.domain().device() == device))
    return Error{Code::kInvalidArgument, "ibv_create_qp"}.with_subject(
        "the protection domain is not of the connection's device");
  auto core = QueuePairCore::create(builder.domain(), builder.send_queue(), builder.receive_queue(),
                                    builder.options(), Rc::kType);
  if (!core) return core.error();
  options = builder.options();
  initiator_depth = detail::initiator_depth(device, options);
  responder_depth = detail::responder_depth(device, options);
  pair.emplace(QueuePair<Rc>{std::move(*core)});
  const Status initialised = modify(IBV_QPS_INIT);
  if (!initialised) pair.reset();
  return initialised;
}

namespace {

/// Sets the builder's options of the path over those of the route.
void set_path(const QueuePairOptions& options, ibv_qp_attr& attributes) noexcept {
  ibv_ah_attr& path = attributes.ah_attr;
  path.sl = options.service_level.value_or(path.sl);
  path.grh.traffic_class = options.traffic_class.value_or(path.grh.traffic_class);
  path.grh.hop_limit = options.hop_limit.value_or(path.grh.hop_limit);
  path.grh.flow_label = options.flow_label.value_or(path.grh.flow_label);
  if (options.gid_index) path.grh.sgid_index = static_cast<std::uint8_t>(*options.gid_index);
  // The route's MTU is the largest that the port, and the network as far as the manager knows it,
  // can carry.
  if (options.mtu) attributes.path_mtu = std::min(attributes.path_mtu, *options.mtu);
}

/// The later of two time-outs; 0 means "never".
std::uint8_t later_timeout(std::uint8_t one, std::uint8_t other) noexcept {
  return one == 0 ? one : std::max(one, other);
}

}  // namespace

// One step with the attributes that the connection manager knows from the route and the peer, with
// the builder's options over them.
Status ConnectionState::modify(ibv_qp_state state) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  int mask = 0;
  errno = 0;
  const int result = provider->init_qp_attr(id.get(), &attributes, &mask);
  // A client goes beyond INIT after its peer has answered; the peer may have gone since.
  if (result != 0)
    return handshake_error("rdma_init_qp_attr", errno_of(result), passive || state != IBV_QPS_INIT);
  switch (state) {
    case IBV_QPS_INIT:
      attributes.qp_access_flags = bits(options.access.value_or(default_access(device)));
      attributes.pkey_index = options.pkey_index.value_or(attributes.pkey_index);
      break;
    case IBV_QPS_RTR:
      // Kernels set bits of RoCE addresses on InfiniBand links too (see librdmacm, cma.c).
      mask &= ~0xe00000;
      responder_depth = attributes.max_dest_rd_atomic =
          std::min(attributes.max_dest_rd_atomic, responder_depth);
      set_path(options, attributes);
      attributes.min_rnr_timer = options.min_rnr_timer.value_or(kDefaultMinRnrTimer);
      break;
    case IBV_QPS_RTS:
      initiator_depth = attributes.max_rd_atomic =
          std::min(attributes.max_rd_atomic, initiator_depth);
      attributes.retry_cnt = options.retry_count;
      attributes.rnr_retry = options.rnr_retry_count;
      attributes.timeout =
          options.timeout.value_or(later_timeout(attributes.timeout, options.timeout_at_least));
      break;
    default: break;
  }
  return pair->modify(attributes, mask);
}

Status ConnectionState::bring_up() {
  if (device.is_iwarp()) return {};  // the kernel does it while it connects
  if (const Status moved = modify(IBV_QPS_RTR); !moved) return moved;
  return modify(IBV_QPS_RTS);
}

Status ConnectionState::connect(const ConnectionOptions& asked) {
  if (!pair) return Error{Code::kInvalidArgument, "rdma_connect"}.with_subject("no queue pair");
  if (const Status checked =
          check_private_data(asked.private_data, kMaxConnectDataBytes, "rdma_connect");
      !checked)
    return checked;
  rdma_conn_param parameters{};
  parameters.private_data = asked.private_data.data();
  parameters.private_data_len = static_cast<std::uint8_t>(asked.private_data.size());
  parameters.responder_resources = responder_depth;
  parameters.initiator_depth = initiator_depth;
  parameters.retry_count = options.retry_count;
  parameters.rnr_retry_count = options.rnr_retry_count;
  parameters.qp_num = pair->number();
  errno = 0;
  const int result = provider->connect(id.get(), &parameters);
  if (result != 0)
    return provider_error("rdma_connect", errno_of(result)).with_subject(peer.to_string());
  return {};
}

Status ConnectionState::accept(const ConnectionOptions& asked) {
  if (!pair) return Error{Code::kInvalidArgument, "rdma_accept"}.with_subject("no queue pair");
  if (const Status checked =
          check_private_data(asked.private_data, kMaxAcceptDataBytes, "rdma_accept");
      !checked)
    return checked;
  if (const Status ready = bring_up(); !ready) return ready;
  rdma_conn_param parameters{};
  parameters.private_data = asked.private_data.data();
  parameters.private_data_len = static_cast<std::uint8_t>(asked.private_data.size());
  parameters.responder_resources = responder_depth;
  parameters.initiator_depth = initiator_depth;
  parameters.rnr_retry_count = options.rnr_retry_count;
  parameters.qp_num = pair->number();
  errno = 0;
  const int result = provider->accept(id.get(), &parameters);
  if (result == 0) return {};
  return handshake_error("rdma_accept", errno_of(result), true);
}

// The kernel refuses every step for a connection that the peer has begun or answered, and then
// left.
Error ConnectionState::handshake_error(Operation operation, int number, bool has_peer) const {
  const Error error = has_peer && (number == EINVAL || number == ECONNRESET || number == ENOTCONN)
                          ? Error{Code::kConnectionLost, operation}.with_errno(number).with_reason(
                                Reason::kPeerGone)
                          : provider_error(operation, number);
  return error.with_subject(peer_address().to_string());
}

// The client's half of the handshake: the peer has answered.
Status ConnectionState::finish_connect() {
  if (const Status ready = bring_up(); !ready) {
    // Tells the peer; whether that fails, too, does not matter.
    static_cast<void>(provider->reject(id.get(), nullptr, 0));
    return ready;
  }
  errno = 0;
  const int result = provider->establish(id.get());
  if (result != 0) return handshake_error("rdma_establish", errno_of(result), true);
  return {};
}

void ConnectionState::break_pair() noexcept {
  if (!pair) return;
  if (const Status moved = pair->to_error(); !moved) report_teardown_failure(moved.error());
}

ConnectionEvent ConnectionState::translate(const CmEvent& event) {
  ConnectionEvent told;
  told.kind = kind_of(event.type);
  told.status = event.status;
  told.private_data = event.private_data;
  if (told.kind == Kind::kEstablished) established = true;
  if (ends_connection(told.kind)) {
    established = false;
    if (!failure) failure = told;
    if (told.kind == Kind::kDeviceRemoved && !device.empty()) device.mark_gone();
    if (told.kind == Kind::kDisconnected || told.kind == Kind::kDeviceRemoved) break_pair();
  }
  return told;
}

Result<std::optional<ConnectionEvent>> ConnectionState::next_event() {
  const auto event = take_event(*provider, id.get_deleter().channel.get());
  if (!event) return event.error();
  if (!event->has_value()) return std::optional<ConnectionEvent>{};
  if ((*event)->type == RDMA_CM_EVENT_CONNECT_RESPONSE) {
    if (const Status finished = finish_connect(); !finished) {
      if (!failure) failure = ConnectionEvent{Kind::kConnectError, 0, PrivateData{}};
      return finished.error();
    }
  }
  return std::optional{translate(**event)};
}

Result<ConnectionEvent> ConnectionState::wait_event(Deadline deadline) {
  for (;;) {
    auto event = next_event();
    if (!event) return event.error();
    if (event->has_value()) return **event;
    if (const Status ready = wait_readable(event_fd(), deadline); !ready) {
      if (ready.error().code() != Code::kTimedOut) return ready.error();
      return Error{Code::kTimedOut, "rdma_get_cm_event"}.with_subject(peer_address().to_string());
    }
  }
}

Status ConnectionState::wait_established(Deadline deadline) {
  while (!established) {
    if (failure) return failure->error(peer_address());
    if (const auto event = wait_event(deadline); !event) return event.error();
  }
  return {};
}

Status ConnectionState::disconnect() {
  if (disconnecting) return {};
  disconnecting = true;
  established = false;
  const Status broken = pair ? pair->to_error() : Status{};
  errno = 0;
  const int result = provider->disconnect(id.get());
  if (result != 0) {
    const int number = errno_of(result);
    // Not connected any more: the peer has disconnected first, which has the same result.
    if (number != EINVAL && number != ENOTCONN)
      return provider_error("rdma_disconnect", number).with_subject(peer_address().to_string());
  }
  return broken;
}

}  // namespace remora::verbs::detail
