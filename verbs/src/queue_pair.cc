#include <algorithm>
#include <cerrno>
#include <string>
#include <sys/random.h>
#include <utility>

#include <remora/verbs/queue_pair.h>
#include <remora/verbs/teardown.h>

#include "errors.h"
#include "queue_pair_limits.h"
#include "wire.h"

namespace remora::verbs {
namespace {

constexpr std::uint32_t kMax24Bits = 0xffffff;
constexpr std::uint32_t kDefaultBatchRequests = 64;
constexpr std::uint8_t kDefaultTimeout = 14;

std::uint32_t random_psn() noexcept {
  std::uint32_t value = 0;
  // A short read leaves zeros: a valid number, only a less surprising one.
  if (::getrandom(&value, sizeof(value), GRND_NONBLOCK) < 0) value = 0;
  return value & kMax24Bits;
}

Error bad_value(std::string_view what, std::uint64_t asked, std::uint64_t allowed) {
  return Error{Code::kInvalidArgument, "QueuePairBuilder::build"}.with_subject(what).with_limit(
      asked, allowed);
}

Status check_ranges(const QueuePairOptions& options) {
  if (options.timeout.value_or(0) > 31) return bad_value("timeout", *options.timeout, 31);
  if (options.retry_count > 7) return bad_value("retry_count", options.retry_count, 7);
  if (options.rnr_retry_count > 7) return bad_value("rnr_retry_count", options.rnr_retry_count, 7);
  if (options.min_rnr_timer.value_or(0) > 31)
    return bad_value("min_rnr_timer", *options.min_rnr_timer, 31);
  if (options.psn.value_or(0) > kMax24Bits) return bad_value("psn", *options.psn, kMax24Bits);
  if (options.service_level > 15) return bad_value("service_level", options.service_level, 15);
  if (options.gid_index.value_or(0) > 255) return bad_value("gid_index", *options.gid_index, 255);
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
  if (options.receive_depth > limits.max_qp_wr)
    return over("receive_depth", options.receive_depth, limits.max_qp_wr);
  if (options.send_sge > limits.max_sge) return over("send_sge", options.send_sge, limits.max_sge);
  if (options.receive_sge > limits.max_sge)
    return over("receive_sge", options.receive_sge, limits.max_sge);
  if (options.initiator_depth.value_or(0) > limits.max_initiator_depth)
    return over("initiator_depth", *options.initiator_depth, limits.max_initiator_depth);
  if (options.responder_depth.value_or(0) > limits.max_responder_depth)
    return over("responder_depth", *options.responder_depth, limits.max_responder_depth);
  return {};
}

// Where inline data cannot be had, drivers answer EINVAL and nothing else.
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

std::string_view to_string(QueuePairState state) noexcept {
  switch (state) {
    case QueuePairState::kReset: return "RESET";
    case QueuePairState::kInit: return "INIT";
    case QueuePairState::kRtr: return "RTR";
    case QueuePairState::kRts: return "RTS";
    case QueuePairState::kSqd: return "SQD";
    case QueuePairState::kSqe: return "SQE";
    case QueuePairState::kErr: return "ERR";
    case QueuePairState::kUnknown: break;
  }
  return "unknown";
}

std::array<std::byte, Endpoint::kWireBytes> Endpoint::to_wire() const noexcept {
  std::array<std::byte, kWireBytes> wire{};
  for (std::size_t i = 0; i < gid.bytes.size(); ++i) wire[i] = std::byte{gid.bytes[i]};
  detail::store_big(wire.data() + 16, qp_number);
  detail::store_big(wire.data() + 20, psn);
  detail::store_big(wire.data() + 24, lid);
  wire[26] = static_cast<std::byte>(mtu);
  return wire;
}

Result<Endpoint> Endpoint::from_wire(std::span<const std::byte> bytes) {
  const Error refused{Code::kProtocol, "Endpoint::from_wire"};
  if (bytes.size() != kWireBytes) return refused.with_limit(bytes.size(), kWireBytes);
  Endpoint endpoint;
  for (std::size_t i = 0; i < endpoint.gid.bytes.size(); ++i)
    endpoint.gid.bytes[i] = std::to_integer<std::uint8_t>(bytes[i]);
  endpoint.qp_number = detail::load_big<std::uint32_t>(bytes.data() + 16);
  endpoint.psn = detail::load_big<std::uint32_t>(bytes.data() + 20);
  endpoint.lid = detail::load_big<std::uint16_t>(bytes.data() + 24);
  const auto mtu = std::to_integer<unsigned>(bytes[26]);
  if (endpoint.qp_number > kMax24Bits) return refused.with_subject("queue pair number");
  if (endpoint.psn > kMax24Bits) return refused.with_subject("packet sequence number");
  if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096) return refused.with_subject("path MTU");
  if (bytes[27] != std::byte{0}) return refused.with_subject("reserved byte");
  endpoint.mtu = static_cast<ibv_mtu>(mtu);
  return endpoint;
}

std::ostream& operator<<(std::ostream& out, const Endpoint& endpoint) {
  return out << "qp " << endpoint.qp_number << " psn " << endpoint.psn << " gid "
             << endpoint.gid.to_string() << " lid " << endpoint.lid << " mtu "
             << mtu_bytes(endpoint.mtu);
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
  const int result = domain.device().provider().destroy_qp(pair);
  if (result != 0) report_teardown_failure(provider_error("ibv_destroy_qp", errno_of(result)));
}

Result<QueuePairCore> QueuePairCore::create(const ProtectionDomain& domain,
                                            const CompletionQueue& send_queue,
                                            const CompletionQueue& receive_queue,
                                            const QueuePairOptions& options, ibv_qp_type type) {
  if (domain.empty() || send_queue.empty() || receive_queue.empty())
    return Error{Code::kInvalidArgument, "ibv_create_qp"};
  const Device& device = domain.device();
  if (!(send_queue.device() == device) || !(receive_queue.device() == device))
    return Error{Code::kInvalidArgument, "ibv_create_qp"}.with_subject(
        "domain and completion queues of different devices");
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
  attributes.cap.max_recv_wr = options.receive_depth;
  attributes.cap.max_send_sge = options.send_sge;
  attributes.cap.max_recv_sge = options.receive_sge;
  attributes.cap.max_inline_data = options.inline_bytes;
  errno = 0;
  ibv_qp* const raw = device.provider().create_qp(domain.raw(), &attributes);
  if (raw == nullptr) return creation_error(device, options, errno_of(-1));
  std::unique_ptr<ibv_qp, Destroy> pair{raw, Destroy{domain, send_queue, receive_queue}};
  const QueuePairCapabilities granted{attributes.cap.max_send_wr, attributes.cap.max_recv_wr,
                                      attributes.cap.max_send_sge, attributes.cap.max_recv_sge,
                                      attributes.cap.max_inline_data};
  return QueuePairCore{std::move(pair), granted, std::move(*batch), std::move(*receives)};
}

Status QueuePairCore::modify(ibv_qp_attr& attributes, int mask) const {
  const int result = domain().device().provider().modify_qp(qp_.get(), &attributes, mask);
  if (result == 0) return {};
  // The state asked for says which step it was; the subject carries it.
  const auto state = (mask & IBV_QP_STATE) != 0 && attributes.qp_state <= IBV_QPS_ERR
                         ? static_cast<QueuePairState>(attributes.qp_state)
                         : QueuePairState::kUnknown;
  return provider_error("ibv_modify_qp", errno_of(result))
      .with_subject(state == QueuePairState::kUnknown ? std::string{"attributes"}
                                                      : "to " + std::string{to_string(state)});
}

Status QueuePairCore::to_init(const QueuePairOptions& options) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = options.pkey_index;
  attributes.port_num = options.port;
  attributes.qp_access_flags = bits(options.access.value_or(default_access(domain().device())));
  return modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
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

}  // namespace detail

template <Transport T>
Result<PreparedQueuePair<T>> PreparedQueuePair<T>::build(const QueuePairBuilder<T>& builder) {
  QueuePairOptions options = builder.options();
  auto core = detail::QueuePairCore::create(builder.domain(), builder.send_queue(),
                                            builder.receive_queue(), options, T::kType);
  if (!core) return core.error();
  const Device& device = builder.domain().device();
  const auto port = device.query_port(options.port);
  if (!port) return port.error();
  if (!port->active())
    return Error{Code::kInvalidArgument, "QueuePairBuilder::build"}.with_subject(
        std::string{device.name()} + " port " + std::to_string(options.port) + " is " +
        std::string{verbs::to_string(port->state)});

  Endpoint endpoint;
  endpoint.lid = port->lid;
  endpoint.qp_number = core->qp_->qp_num;
  endpoint.psn = options.psn.value_or(random_psn());
  endpoint.mtu = std::min(options.mtu.value_or(port->active_mtu), port->active_mtu);
  const auto table = device.query_gids();
  if (!table) return table.error();
  if (options.gid_index) {
    const auto row = std::find_if(table->begin(), table->end(), [&](const GidEntry& entry) {
      return entry.port == options.port && entry.index == *options.gid_index;
    });
    if (row == table->end())
      return Error{Code::kNotFound, "QueuePairBuilder::build"}.with_subject(
          "gid index " + std::to_string(*options.gid_index));
    endpoint.gid = row->gid;
  } else {
    const auto taken = choose_gid(*table, {.port = options.port}).taken();
    if (!taken) return taken.error();
    endpoint.gid = taken->gid;
    options.gid_index = taken->index;
  }
  if (const Status initialised = core->to_init(options); !initialised) return initialised.error();
  options.psn = endpoint.psn;
  options.mtu = endpoint.mtu;
  return PreparedQueuePair{QueuePair<T>{std::move(*core)}, endpoint, options};
}

template <Transport T>
Result<QueuePair<T>> PreparedQueuePair<T>::connect(const Endpoint& remote) && {
  if (remote.qp_number > kMax24Bits || remote.psn > kMax24Bits || remote.mtu < IBV_MTU_256 ||
      remote.mtu > IBV_MTU_4096)
    return Error{Code::kInvalidArgument, "PreparedQueuePair::connect"};
  const Device device = pair_.domain().device();
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.path_mtu = std::min(*options_.mtu, remote.mtu);
  receive.dest_qp_num = remote.qp_number;
  receive.rq_psn = remote.psn;
  receive.max_dest_rd_atomic = detail::responder_depth(device, options_);
  receive.min_rnr_timer = options_.min_rnr_timer.value_or(detail::kDefaultMinRnrTimer);
  receive.ah_attr.port_num = options_.port;
  receive.ah_attr.dlid = remote.lid;
  receive.ah_attr.sl = options_.service_level;
  // Ethernet has no LIDs: there the GID is the only address.
  if (endpoint_.lid == 0 || remote.lid == 0) {
    receive.ah_attr.is_global = 1;
    receive.ah_attr.grh.dgid = remote.gid.raw();
    receive.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(*options_.gid_index);
    receive.ah_attr.grh.hop_limit = options_.hop_limit;
    receive.ah_attr.grh.traffic_class = options_.traffic_class;
  }
  if (const Status moved = pair_.core_.modify(
          receive, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
      !moved) {
    const int number = moved.error().system_errno();
    if (number != ETIMEDOUT && number != EHOSTUNREACH && number != ENETUNREACH)
      return moved.error();
    return Error{Code::kUnreachable, "ibv_modify_qp"}.with_errno(number).with_subject(
        endpoint_.gid.to_string() + " to " + remote.gid.to_string());
  }
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.sq_psn = endpoint_.psn;
  send.timeout = options_.timeout.value_or(kDefaultTimeout);
  send.retry_cnt = options_.retry_count;
  send.rnr_retry = options_.rnr_retry_count;
  send.max_rd_atomic = detail::initiator_depth(device, options_);
  if (const Status moved = pair_.core_.modify(send, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
                                                        IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                                        IBV_QP_MAX_QP_RD_ATOMIC);
      !moved)
    return moved.error();
  return std::move(pair_);
}

template class PreparedQueuePair<Rc>;

}  // namespace remora::verbs
