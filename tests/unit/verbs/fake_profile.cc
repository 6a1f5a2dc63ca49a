// What FakeVerbs does as its profile says.
#include <algorithm>
#include <bit>
#include <cerrno>

#include "fake_verbs.h"

namespace remora::test {

void FakeVerbs::play(const DeviceProfile& kind) {
  profile_ = &kind;
  attributes.max_qp_wr = kind.max_qp_wr;
  attributes.max_sge = kind.max_sge;
  attributes.max_cqe = kind.max_cqe;
  attributes.max_qp_rd_atom = kind.max_responder_depth;
  attributes.max_qp_init_rd_atom = kind.max_initiator_depth;
  attributes.atomic_cap = kind.atomics;
  attributes.device_cap_flags = kind.says_windows_type_2 ? IBV_DEVICE_MEM_WINDOW_TYPE_2B : 0;
  device.transport_type = kind.iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
  device.node_type = kind.iwarp ? IBV_NODE_RNIC : IBV_NODE_CA;
  cm_context.num_comp_vectors = kind.completion_vectors;
}

std::uint32_t FakeVerbs::next_key(std::uint32_t fixed) {
  if (profile_->keys == KeyHabit::kFixed) return fixed;
  const std::lock_guard lock{mutex_};
  if (profile_->keys == KeyHabit::kFresh || freed_keys_.empty()) return next_key_++;
  const std::uint32_t key = freed_keys_.back();
  freed_keys_.pop_back();
  return key;
}

void FakeVerbs::free_key(std::uint32_t key) {
  const std::lock_guard lock{mutex_};
  freed_keys_.push_back(key);
}

int FakeVerbs::refusal_of(const ibv_qp_init_attr& asked) const {
  const bool reliable = asked.qp_type == IBV_QPT_RC || asked.qp_type == IBV_QPT_UC;
  if (reliable && !profile_->has_reliable_connections) return EOPNOTSUPP;
  if (asked.cap.max_inline_data > profile_->max_inline_bytes) return EINVAL;
  if (profile_->entry_bytes == nullptr || asked.cap.max_send_wr == 0) return 0;
  const std::uint64_t bytes =
      std::bit_ceil(std::uint64_t{asked.cap.max_send_wr} * profile_->entry_bytes(asked.cap));
  return bytes > profile_->send_queue_bytes_max ? EINVAL : 0;
}

int FakeVerbs::refusal_of(const ibv_qp* pair, const ibv_qp_attr& attributes_of_pair, int mask) {
  const std::lock_guard lock{mutex_};
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) access_[pair] = attributes_of_pair.qp_access_flags;
  const bool to_rtr = (mask & IBV_QP_STATE) != 0 && attributes_of_pair.qp_state == IBV_QPS_RTR;
  const bool atomic =
      (access_[pair] & IBV_ACCESS_REMOTE_ATOMIC) != 0 && attributes_of_pair.max_dest_rd_atomic != 0;
  return profile_->refuses_atomic_access && to_rtr && atomic ? EOPNOTSUPP : 0;
}

void FakeVerbs::forget(const ibv_qp* pair) {
  const std::lock_guard lock{mutex_};
  access_.erase(pair);
  outstanding_.erase(pair);
  failed_.erase(pair);
}

void FakeVerbs::complete(ibv_qp* pair, const ibv_send_wr& request) {
  const std::lock_guard lock{mutex_};
  const auto report = [&](std::uint64_t id, ibv_wc_status status) {
    ibv_wc done{};
    done.wr_id = id;
    done.status = status;
    done.qp_num = pair->qp_num;
    completions.push_back(done);
  };
  if (failed_.contains(pair)) return report(request.wr_id, IBV_WC_WR_FLUSH_ERR);
  std::deque<std::uint64_t>& before = outstanding_[pair];
  if (refused_id == request.wr_id) {
    failed_.insert(pair);
    before.push_back(request.wr_id);
    if (!profile_->reports_errors_at_oldest) before = {request.wr_id};
    report(before.front(), refused_status);
    before.pop_front();
    for (const std::uint64_t id : before) report(id, IBV_WC_WR_FLUSH_ERR);
    before.clear();
    return;
  }
  if ((request.send_flags & IBV_SEND_SIGNALED) == 0) return before.push_back(request.wr_id);
  before.clear();
  report(request.wr_id, IBV_WC_SUCCESS);
}

}  // namespace remora::test
