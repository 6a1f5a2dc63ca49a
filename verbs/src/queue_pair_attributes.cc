#include <array>
#include <utility>

#include <remora/verbs/device.h>
#include <remora/verbs/queue_pair_attributes.h>

namespace remora::verbs {
namespace {

constexpr int kRcPath = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kRcTimes =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kConnectedOptional = IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;

struct Step {
  bool possible = false;
  int required = 0;
  int optional = 0;
};

// One row for each transport: datagrams, unreliable, reliable.
struct Row {
  QueuePairState from;
  QueuePairState to;
  std::array<Step, 3> steps;
};

using enum QueuePairState;

constexpr std::array<Row, 8> kSteps{{
    {kReset,
     kInit,
     {{{true, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
       {true, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
       {true, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0}}}},
    {kInit,
     kInit,
     {{{true, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
       {true, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
       {true, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS}}}},
    {kInit,
     kRtr,
     {{{true, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
       {true, kRcPath, IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH},
       {true, kRcPath | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH}}}},
    {kRtr,
     kRts,
     {{{true, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
       {true, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | kConnectedOptional},
       {true, IBV_QP_SQ_PSN | kRcTimes,
        IBV_QP_CUR_STATE | kConnectedOptional | IBV_QP_MIN_RNR_TIMER}}}},
    {kRts,
     kRts,
     {{{true, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
       {true, 0, IBV_QP_CUR_STATE | kConnectedOptional},
       {true, 0, IBV_QP_CUR_STATE | kConnectedOptional | IBV_QP_MIN_RNR_TIMER}}}},
    {kRts,
     kSqd,
     {{{true, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
       {true, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
       {true, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY}}}},
    {kSqd,
     kRts,
     {{{true, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
       {true, 0, IBV_QP_CUR_STATE | kConnectedOptional},
       {true, 0, IBV_QP_CUR_STATE | kConnectedOptional | IBV_QP_MIN_RNR_TIMER}}}},
    {kSqd,
     kSqd,
     {{{true, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
       {true, 0, IBV_QP_AV | IBV_QP_PKEY_INDEX | kConnectedOptional},
       {true, 0,
        IBV_QP_PORT | IBV_QP_AV | kRcTimes | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_PKEY_INDEX |
            kConnectedOptional | IBV_QP_MIN_RNR_TIMER}}}},
}};

Step step_of(ibv_qp_type type, QueuePairState from, QueuePairState to) noexcept {
  // From any state, with the state as the only attribute.
  if (to == kReset || to == kErr) return {true, 0, IBV_QP_CUR_STATE};
  const std::size_t column = type == IBV_QPT_UD ? 0 : type == IBV_QPT_UC ? 1 : 2;
  if (from == kSqe && to == kRts && column != 2)
    return {true, 0, IBV_QP_CUR_STATE | (column == 0 ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)};
  for (const Row& row : kSteps)
    if (row.from == from && row.to == to) return row.steps[column];
  return {};
}

constexpr std::array<std::pair<int, std::string_view>, 21> kNames{{
    {IBV_QP_CUR_STATE, "current_state"},
    {IBV_QP_EN_SQD_ASYNC_NOTIFY, "en_sqd_async_notify"},
    {IBV_QP_ACCESS_FLAGS, "access"},
    {IBV_QP_PKEY_INDEX, "pkey_index"},
    {IBV_QP_PORT, "port"},
    {IBV_QP_QKEY, "qkey"},
    {IBV_QP_AV, "path"},
    {IBV_QP_PATH_MTU, "mtu"},
    {IBV_QP_TIMEOUT, "timeout"},
    {IBV_QP_RETRY_CNT, "retry_count"},
    {IBV_QP_RNR_RETRY, "rnr_retry_count"},
    {IBV_QP_RQ_PSN, "receive_psn"},
    {IBV_QP_MAX_QP_RD_ATOMIC, "initiator_depth"},
    {IBV_QP_ALT_PATH, "alternate_path"},
    {IBV_QP_MIN_RNR_TIMER, "min_rnr_timer"},
    {IBV_QP_SQ_PSN, "send_psn"},
    {IBV_QP_MAX_DEST_RD_ATOMIC, "responder_depth"},
    {IBV_QP_PATH_MIG_STATE, "path_mig_state"},
    {IBV_QP_CAP, "capabilities"},
    {IBV_QP_DEST_QPN, "destination_qp"},
    {IBV_QP_RATE_LIMIT, "rate_limit"},
}};

void append_names(std::string& text, std::string_view word, int mask) {
  if (mask == 0) return;
  if (!text.empty()) text += "; ";
  text += word;
  const char* separator = " ";
  for (const auto& [bit, name] : kNames) {
    if ((mask & bit) == 0) continue;
    text.append(separator).append(name);
    separator = ", ";
  }
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

StepCheck check_step(ibv_qp_type type, QueuePairState from, QueuePairState to, int mask) noexcept {
  const Step step = step_of(type, from, to);
  StepCheck check;
  check.possible = step.possible;
  if (!step.possible) return check;
  check.missing = step.required & ~mask;
  check.surplus = mask & ~(IBV_QP_STATE | step.required | step.optional);
  return check;
}

std::string to_string(const StepCheck& check) {
  if (!check.possible) return "no such step";
  std::string text;
  append_names(text, "missing", check.missing);
  append_names(text, "surplus", check.surplus);
  return text;
}

std::pair<ibv_qp_attr, int> QueuePairAttributes::raw() const noexcept {
  ibv_qp_attr attributes{};
  int mask = 0;
  const auto put = [&mask](const auto& value, auto& to, int bit) {
    if (!value) return;
    to = static_cast<std::remove_reference_t<decltype(to)>>(*value);
    mask |= bit;
  };
  put(state, attributes.qp_state, IBV_QP_STATE);
  put(current_state, attributes.cur_qp_state, IBV_QP_CUR_STATE);
  put(pkey_index, attributes.pkey_index, IBV_QP_PKEY_INDEX);
  put(port, attributes.port_num, IBV_QP_PORT);
  put(access, attributes.qp_access_flags, IBV_QP_ACCESS_FLAGS);
  put(qkey, attributes.qkey, IBV_QP_QKEY);
  put(mtu, attributes.path_mtu, IBV_QP_PATH_MTU);
  put(destination_qp, attributes.dest_qp_num, IBV_QP_DEST_QPN);
  put(receive_psn, attributes.rq_psn, IBV_QP_RQ_PSN);
  put(responder_depth, attributes.max_dest_rd_atomic, IBV_QP_MAX_DEST_RD_ATOMIC);
  put(min_rnr_timer, attributes.min_rnr_timer, IBV_QP_MIN_RNR_TIMER);
  put(send_psn, attributes.sq_psn, IBV_QP_SQ_PSN);
  put(timeout, attributes.timeout, IBV_QP_TIMEOUT);
  put(retry_count, attributes.retry_cnt, IBV_QP_RETRY_CNT);
  put(rnr_retry_count, attributes.rnr_retry, IBV_QP_RNR_RETRY);
  put(initiator_depth, attributes.max_rd_atomic, IBV_QP_MAX_QP_RD_ATOMIC);
  if (path) {
    attributes.ah_attr = path->raw();
    mask |= IBV_QP_AV;
  }
  return {attributes, mask};
}

QueuePairAttributes QueuePairAttributes::from(const ibv_qp_attr& raw, int mask) noexcept {
  QueuePairAttributes attributes;
  const auto take = [mask](auto& to, const auto& value, int bit) {
    if ((mask & bit) != 0)
      to = static_cast<typename std::remove_reference_t<decltype(to)>::value_type>(value);
  };
  const auto state_of = [](ibv_qp_state value) {
    return value > IBV_QPS_ERR ? kUnknown : static_cast<QueuePairState>(value);
  };
  take(attributes.state, state_of(raw.qp_state), IBV_QP_STATE);
  take(attributes.current_state, state_of(raw.cur_qp_state), IBV_QP_CUR_STATE);
  take(attributes.pkey_index, raw.pkey_index, IBV_QP_PKEY_INDEX);
  take(attributes.port, raw.port_num, IBV_QP_PORT);
  take(attributes.access, raw.qp_access_flags, IBV_QP_ACCESS_FLAGS);
  take(attributes.qkey, raw.qkey, IBV_QP_QKEY);
  take(attributes.mtu, raw.path_mtu, IBV_QP_PATH_MTU);
  take(attributes.destination_qp, raw.dest_qp_num, IBV_QP_DEST_QPN);
  take(attributes.receive_psn, raw.rq_psn, IBV_QP_RQ_PSN);
  take(attributes.responder_depth, raw.max_dest_rd_atomic, IBV_QP_MAX_DEST_RD_ATOMIC);
  take(attributes.min_rnr_timer, raw.min_rnr_timer, IBV_QP_MIN_RNR_TIMER);
  take(attributes.send_psn, raw.sq_psn, IBV_QP_SQ_PSN);
  take(attributes.timeout, raw.timeout, IBV_QP_TIMEOUT);
  take(attributes.retry_count, raw.retry_cnt, IBV_QP_RETRY_CNT);
  take(attributes.rnr_retry_count, raw.rnr_retry, IBV_QP_RNR_RETRY);
  take(attributes.initiator_depth, raw.max_rd_atomic, IBV_QP_MAX_QP_RD_ATOMIC);
  if ((mask & IBV_QP_AV) != 0) attributes.path = AddressVector::from(raw.ah_attr);
  return attributes;
}

std::ostream& operator<<(std::ostream& out, const QueuePairAttributes& attributes) {
  const char* separator = "";
  const auto put = [&](std::string_view name, const auto& value) {
    if (!value) return;
    out << separator << name << ' ';
    separator = " ";
    if constexpr (requires { to_string(*value); })
      out << to_string(*value);
    else if constexpr (requires { value->port; })
      out << '[' << *value << ']';
    else
      out << +*value;
  };
  put("state", attributes.state);
  put("current_state", attributes.current_state);
  put("pkey_index", attributes.pkey_index);
  put("port", attributes.port);
  put("access", attributes.access);
  put("qkey", attributes.qkey);
  put("path", attributes.path);
  if (attributes.mtu) {
    out << separator << "mtu " << mtu_bytes(*attributes.mtu);
    separator = " ";
  }
  put("destination_qp", attributes.destination_qp);
  put("receive_psn", attributes.receive_psn);
  put("responder_depth", attributes.responder_depth);
  put("min_rnr_timer", attributes.min_rnr_timer);
  put("send_psn", attributes.send_psn);
  put("timeout", attributes.timeout);
  put("retry_count", attributes.retry_count);
  put("rnr_retry_count", attributes.rnr_retry_count);
  put("initiator_depth", attributes.initiator_depth);
  return out;
}

}  // namespace remora::verbs
