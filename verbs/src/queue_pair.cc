#include <algorithm>
#include <cerrno>
#include <string>
#include <sys/random.h>
#include <utility>

#include <remora/verbs/queue_pair.h>
#include <remora/verbs/teardown.h>

#include "errors.h"
#include "queue_pair_limits.h"
#include "route.h"
#include "window_set.h"

namespace remora::verbs {
namespace {

constexpr std::uint32_t kMax20Bits = 0xfffff;
constexpr std::uint32_t kMax24Bits = 0xffffff;
constexpr std::uint32_t kDefaultBatchRequests = 64;
constexpr std::uint8_t kDefaultTimeout = 14;

constexpr int kDatagramAttributes =
    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY | IBV_QP_SQ_PSN;
constexpr int kConnectedAttributes =
    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS | IBV_QP_AV |
    IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_QP_RD_ATOMIC |
    IBV_QP_MAX_DEST_RD_ATOMIC;

std::uint32_t random_psn() noexcept {
  std::uint32_t value = 0;
  // A short read leaves zeros, which is a valid number, only easier to guess.
  if (::getrandom(&value, sizeof(value), GRND_NONBLOCK) < 0) value = 0;
  return value & kMax24Bits;
}

Error bad_value(std::string_view what, std::uint64_t asked, std::uint64_t allowed) {
  return Error{Code::kInvalidArgument, "QueuePairBuilder::build"}.with_subject(what).with_limit(
      asked, allowed);
}

Status check_ranges(const QueuePairOptions& options) {
  if (options.timeout.value_or(0) > 31) return bad_value("timeout", *options.timeout, 31);
  if (options.timeout_at_least > 31)
    return bad_value("timeout_at_least", options.timeout_at_least, 31);
  if (options.retry_count > 7) return bad_value("retry_count", options.retry_count, 7);
  if (options.rnr_retry_count > 7) return bad_value("rnr_retry_count", options.rnr_retry_count, 7);
  if (options.min_rnr_timer.value_or(0) > 31)
    return bad_value("min_rnr_timer", *options.min_rnr_timer, 31);
  if (options.psn.value_or(0) > kMax24Bits) return bad_value("psn", *options.psn, kMax24Bits);
  if (options.service_level.value_or(0) > 15)
    return bad_value("service_level", *options.service_level, 15);
  if (options.gid_index.value_or(0) > 255) return bad_value("gid_index", *options.gid_index, 255);
  if (options.flow_label.value_or(0) > kMax20Bits)
    return bad_value("flow_label", *options.flow_label, kMax20Bits);
  return {};
}

Status check_limits(const Device& device, const QueuePairOptions& options) {
  const DeviceAttributes& limits = device.attributes();
  const auto over = [&](std::string_view what, std::uint64_t asked, std::uint64_t allowed) {
    return Error{Code::kLimitExceeded, "ibv_create_qp"}.with_subject(what).with_limit(asked,
                                                                                      allowed);
  };
  if (options.send_depth > limits.max_qp_wr)
    return over("send_depth", options.send_depth, limits.max_qp_wr);
  const bool shared = !options.shared_receive_queue.empty();
  if (!shared && options.receive_depth > limits.max_qp_wr)
    return over("receive_depth", options.receive_depth, limits.max_qp_wr);
  if (options.send_sge > limits.max_sge) return over("send_sge", options.send_sge, limits.max_sge);
  if (!shared && options.receive_sge > limits.max_sge)
    return over("receive_sge", options.receive_sge, limits.max_sge);
  if (options.initiator_depth.value_or(0) > limits.max_initiator_depth)
    return over("initiator_depth", *options.initiator_depth, limits.max_initiator_depth);
  if (options.responder_depth.value_or(0) > limits.max_responder_depth)
    return over("responder_depth", *options.responder_depth, limits.max_responder_depth);
  return {};
}

// If inline data is not possible, drivers answer only EINVAL.
Error creation_error(const Device& device, const QueuePairOptions& options, int number) {
  const Error error = detail::provider_error("ibv_create_qp", number);
  if (number == EINVAL && options.inline_bytes != 0)
    return error.with_subject("asked for " + std::to_string(options.inline_bytes) +
                              " inline bytes on " + std::string{device.name()});
  return error.with_subject(device.name());
}

std::uint32_t batch_room(std::uint32_t asked, std::uint32_t depth) noexcept {
  return std::max(1U, asked != 0 ? asked : std::min(depth, kDefaultBatchRequests));
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const QueuePairCapabilities& capabilities) {
  return out << "sends " << capabilities.send_depth << " receives " << capabilities.receive_depth
             << " slices " << capabilities.send_sge << '/' << capabilities.receive_sge << " inline "
             << capabilities.inline_bytes;
}

namespace detail {

Access default_access(const Device& device) noexcept {
  Access access = Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead;
  if (device.attributes().atomics != AtomicSupport::kNone) access |= Access::kRemoteAtomic;
  return access;
}

std::uint8_t responder_depth(const Device& device, const QueuePairOptions& options) noexcept {
  return options.responder_depth.value_or(device.attributes().max_responder_depth);
}

std::uint8_t initiator_depth(const Device& device, const QueuePairOptions& options) noexcept {
  return options.initiator_depth.value_or(device.attributes().max_initiator_depth);
}

QueuePairCore::QueuePairCore(std::unique_ptr<ibv_qp, Destroy> pair,
                             const QueuePairCapabilities& capabilities, BatchStorage batch,
                             ReceiveStorage receives) noexcept
    : qp_{std::move(pair)},
      capabilities_{capabilities},
      batch_{std::move(batch)},
      receives_{std::move(receives)} {
  const Provider& provider = domain().device().provider();
  const ibv_context_ops& device = qp_->context->ops;
  post_send_ = provider.post_send != nullptr ? provider.post_send : device.post_send;
  post_receive_ = provider.post_recv != nullptr ? provider.post_recv : device.post_recv;
}

void QueuePairCore::Destroy::operator()(ibv_qp* pair) const noexcept {
  if (domain.device().foreign()) return;  // of a parent process: not touched
  windows->free_all();
  const int result = domain.device().provider().destroy_qp(pair);
  if (result != 0) report_teardown_failure(provider_error("ibv_destroy_qp", errno_of(result)));
}

Result<QueuePairCore> QueuePairCore::create(const ProtectionDomain& domain,
                                            const CompletionQueue& send_queue,
                                            const CompletionQueue& receive_queue,
                                            const QueuePairOptions& options, ibv_qp_type type) {
  if (domain.empty() || send_queue.empty() || receive_queue.empty())
    return Error{Code::kInvalidArgument, "ibv_create_qp"}.with_subject(
        domain.empty() ? "no protection domain" : "no completion queue");
  const Device& device = domain.device();
  if (!(send_queue.device() == device) || !(receive_queue.device() == device))
    return Error{Code::kInvalidArgument, "ibv_create_qp"}.with_subject(
        "domain and completion queues of different devices");
  const SharedReceiveQueue& shared = options.shared_receive_queue;
  if (!shared.empty() && !(shared.domain() == domain))
    return Error{Code::kInvalidArgument, "ibv_create_qp"}.with_subject(
        "the shared receive queue is of another domain");
  if (const Status checked = check_ranges(options); !checked) return checked.error();
  if (const Status checked = check_limits(device, options); !checked) return checked.error();

  auto batch = BatchStorage::allocate(batch_room(options.batch_requests, options.send_depth),
                                      std::max(1U, options.send_sge));
  if (!batch) return batch.error();
  auto receives = ReceiveStorage::allocate(
      batch_room(options.batch_requests, options.receive_depth), std::max(1U, options.receive_sge));
  if (!receives) return receives.error();

  ibv_qp_init_attr attributes{};
  attributes.qp_context = options.context;
  attributes.send_cq = send_queue.raw();
  attributes.recv_cq = receive_queue.raw();
  attributes.qp_type = type;
  attributes.sq_sig_all = options.signal_all ? 1 : 0;
  attributes.cap.max_send_wr = options.send_depth;
  attributes.srq = shared.raw();
  attributes.cap.max_recv_wr = shared.empty() ? options.receive_depth : 0;
  attributes.cap.max_send_sge = options.send_sge;
  attributes.cap.max_recv_sge = shared.empty() ? options.receive_sge : 0;
  attributes.cap.max_inline_data = options.inline_bytes;
  errno = 0;
  ibv_qp* const raw = device.provider().create_qp(domain.raw(), &attributes);
  if (raw == nullptr) return creation_error(device, options, errno_of(-1));
  std::unique_ptr<ibv_qp, Destroy> pair{
      raw, Destroy{domain, send_queue, receive_queue, shared, std::make_shared<WindowSet>()}};
  const QueuePairCapabilities granted{attributes.cap.max_send_wr, attributes.cap.max_recv_wr,
                                      attributes.cap.max_send_sge, attributes.cap.max_recv_sge,
                                      attributes.cap.max_inline_data};
  return QueuePairCore{std::move(pair), granted, std::move(*batch), std::move(*receives)};
}

Status QueuePairCore::modify(ibv_qp_attr& attributes, int mask) const {
  const int result = domain().device().provider().modify_qp(qp_.get(), &attributes, mask);
  if (result == 0) return {};
  return modify_error(attributes, mask, errno_of(result));
}

Status QueuePairCore::modify(const QueuePairAttributes& attributes) const {
  auto [raw, mask] = attributes.raw();
  return modify(raw, mask);
}

// The requested state tells which step it was, so the subject contains it. For EINVAL the subject
// also lists the attributes that the step lacks or must not have.
Error QueuePairCore::modify_error(const ibv_qp_attr& attributes, int mask, int number) const {
  const Error error = provider_error("ibv_modify_qp", number);
  const bool moves = (mask & IBV_QP_STATE) != 0 && attributes.qp_state <= IBV_QPS_ERR;
  const auto to =
      moves ? static_cast<QueuePairState>(attributes.qp_state) : QueuePairState::kUnknown;
  std::string subject = moves ? "to " + std::string{to_string(to)} : std::string{"attributes"};
  if (number != EINVAL) return error.with_subject(subject);
  const auto from = query_state();
  if (!from || *from == QueuePairState::kUnknown) return error.with_subject(subject);
  const StepCheck check = check_step(qp_->qp_type, *from, moves ? to : *from, mask);
  if (!check.ok())
    subject = std::string{to_string(*from)} + ' ' + subject + ": " + verbs::to_string(check);
  return error.with_subject(subject);
}

Result<ibv_qp_attr> QueuePairCore::query(int mask) const {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  const int result = domain().device().provider().query_qp(qp_.get(), &attributes, mask, &initial);
  if (result != 0) return provider_error("ibv_query_qp", errno_of(result));
  return attributes;
}

Result<QueuePairState> QueuePairCore::query_state() const {
  const auto attributes = query(IBV_QP_STATE);
  if (!attributes) return attributes.error();
  if (attributes->qp_state > IBV_QPS_ERR) return QueuePairState::kUnknown;
  return static_cast<QueuePairState>(attributes->qp_state);
}

Result<QueuePairAttributes> QueuePairCore::query_all() const {
  const bool datagrams = qp_->qp_type == IBV_QPT_UD;
  const int mask = datagrams ? kDatagramAttributes : kConnectedAttributes;
  const auto attributes = query(mask);
  if (!attributes) return attributes.error();
  return QueuePairAttributes::from(*attributes, mask);
}

Result<MemoryWindow> QueuePairCore::allocate_window() const {
  const Device& device = domain().device();
  if (!device.attributes().memory_window_type_2)
    return Error{Code::kUnsupported, "ibv_alloc_mw"}.with_subject(device.name());
  errno = 0;
  ibv_mw* const raw = device.provider().alloc_mw(domain().raw(), IBV_MW_TYPE_2);
  if (raw == nullptr)
    return provider_error("ibv_alloc_mw", errno_of(-1)).with_subject(device.name());
  auto record = std::make_shared<WindowRecord>(domain(), raw, qp_.get());
  qp_.get_deleter().windows->add(record);
  return MemoryWindow{std::move(record)};
}

Status connect(const QueuePairCore& core, bool reliable, const QueuePairOptions& options,
               const Endpoint& local, const Endpoint& remote) {
  const Device& device = core.domain().device();
  const bool known_mtu = remote.mtu >= IBV_MTU_256 && remote.mtu <= IBV_MTU_4096;
  if (remote.qp_number > kMax24Bits || remote.psn > kMax24Bits || !known_mtu)
    return Error{Code::kInvalidArgument, "PreparedQueuePair::connect"}.with_subject(
        known_mtu ? "queue pair number or psn beyond 24 bits" : "path MTU");
  QueuePairAttributes receive;
  receive.state = QueuePairState::kRtr;
  receive.mtu = std::min(*options.mtu, remote.mtu);
  receive.destination_qp = remote.qp_number;
  receive.receive_psn = remote.psn;
  // Ethernet has no LIDs: there the GID is the only address.
  AddressVector path =
      source_of(options, options.global_route || local.lid == 0 || remote.lid == 0);
  path.lid = remote.lid;
  if (path.route) path.route->destination = remote.gid;
  receive.path = path;
  QueuePairAttributes send;
  send.state = QueuePairState::kRts;
  send.send_psn = local.psn;
  if (reliable) {
    receive.responder_depth = responder_depth(device, options);
    receive.min_rnr_timer = options.min_rnr_timer.value_or(kDefaultMinRnrTimer);
    send.timeout = options.timeout.value_or(kDefaultTimeout);
    send.retry_count = options.retry_count;
    send.rnr_retry_count = options.rnr_retry_count;
    send.initiator_depth = initiator_depth(device, options);
  }
  if (const Status moved = core.modify(receive); !moved) {
    if (!path.route) return moved;
    return route_error(device, moved.error(), "ibv_modify_qp", options.port, *options.gid_index,
                       remote.gid);
  }
  return core.modify(send);
}

Status activate(const QueuePairCore& core, const QueuePairOptions& options) {
  QueuePairAttributes receive;
  receive.state = QueuePairState::kRtr;
  if (const Status moved = core.modify(receive); !moved) return moved;
  QueuePairAttributes send;
  send.state = QueuePairState::kRts;
  send.send_psn = *options.psn;
  return core.modify(send);
}

AddressVector source_of(const QueuePairOptions& options, bool global) noexcept {
  AddressVector path;
  path.port = options.port;
  path.service_level = options.service_level.value_or(0);
  if (global)
    path.route = GlobalRoute{Gid{}, static_cast<std::uint8_t>(*options.gid_index),
                             options.hop_limit.value_or(kDefaultHopLimit),
                             options.traffic_class.value_or(0), options.flow_label.value_or(0)};
  return path;
}

}  // namespace detail

namespace {

// The GID of this end; fills in its index.
Result<Gid> find_gid(const Device& device, QueuePairOptions& options) {
  const auto table = device.query_gids();
  if (!table) return table.error();
  if (!options.gid_index) {
    const auto taken = choose_gid(*table, {.port = options.port}).taken();
    if (!taken) return taken.error();
    options.gid_index = taken->index;
    return taken->gid;
  }
  const auto row = std::find_if(table->begin(), table->end(), [&](const GidEntry& entry) {
    return entry.port == options.port && entry.index == *options.gid_index;
  });
  if (row != table->end()) return row->gid;
  return Error{Code::kNotFound, "QueuePairBuilder::build"}.with_subject(
      "gid index " + std::to_string(*options.gid_index));
}

QueuePairAttributes initial_attributes(const Device& device, const QueuePairOptions& options,
                                       bool connected) {
  QueuePairAttributes attributes;
  attributes.state = QueuePairState::kInit;
  attributes.pkey_index = options.pkey_index.value_or(0);
  attributes.port = options.port;
  if (connected)
    attributes.access = options.access.value_or(detail::default_access(device));
  else
    attributes.qkey = options.qkey;
  return attributes;
}

}  // namespace

template <Transport T>
Result<PreparedQueuePair<T>> PreparedQueuePair<T>::build(const QueuePairBuilder<T>& builder) {
  QueuePairOptions options = builder.options();
  auto pair = builder.create();
  if (!pair) return pair.error();
  const Device& device = builder.domain().device();
  const auto port = device.query_port(options.port);
  if (!port) return port.error();
  if (!port->active())
    return Error{Code::kInvalidArgument, "QueuePairBuilder::build"}.with_subject(
        std::string{device.name()} + " port " + std::to_string(options.port) + " is " +
        std::string{verbs::to_string(port->state)});
  const auto gid = find_gid(device, options);
  if (!gid) return gid.error();
  options.psn = options.psn.value_or(random_psn());
  options.global_route = options.global_route || port->global_route_required;
  options.mtu = std::min(options.mtu.value_or(port->active_mtu), port->active_mtu);
  if (const Status initialised = pair->modify(initial_attributes(device, options, T::kConnected));
      !initialised)
    return initialised.error();
  const std::uint32_t number = T::kConnected ? *options.psn : options.qkey;
  const EndpointType endpoint{*gid, pair->number(), number, port->lid, *options.mtu};
  return PreparedQueuePair{std::move(*pair), endpoint, options};
}

template <Transport T>
AddressVector PreparedQueuePair<T>::source() const noexcept {
  return detail::source_of(options_, options_.global_route || endpoint_.lid == 0);
}

// Member by member: clang 14 would instantiate, with a whole class, also members that its
// constraints exclude.
template Result<PreparedQueuePair<Rc>> PreparedQueuePair<Rc>::build(const QueuePairBuilder<Rc>&);
template Result<PreparedQueuePair<Uc>> PreparedQueuePair<Uc>::build(const QueuePairBuilder<Uc>&);
template Result<PreparedQueuePair<Ud>> PreparedQueuePair<Ud>::build(const QueuePairBuilder<Ud>&);
template AddressVector PreparedQueuePair<Rc>::source() const noexcept;
template AddressVector PreparedQueuePair<Uc>::source() const noexcept;
template AddressVector PreparedQueuePair<Ud>::source() const noexcept;

}  // namespace remora::verbs
