/// The verbs loop that one would write by hand: post one request, poll for its completion. No
/// sessions, no deadlines, no errors handled.
///
///   peer_verbs --device rxe0 --gid INDEX [--region-mib 1024] [--core 1]
///
/// Two queue pairs of one process, connected with each other over the device: the target of a
/// one-sided operation takes no part in it.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <infiniband/verbs.h>
#include <string>

#include "jobs.h"

namespace remora::bench {
namespace {

constexpr std::uint32_t kQueueDepth = 256;
constexpr std::uint32_t kInlineBytes = 220;
constexpr std::size_t kSlotsBytes = 64U << 20U;

struct Device {
  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  ibv_cq* completions = nullptr;
  ibv_gid gid{};
  std::uint8_t gid_index = 0;
  ibv_mtu mtu = IBV_MTU_1024;
};

Device open_device(const std::string& name, int gid_index) {
  Device made;
  made.gid_index = static_cast<std::uint8_t>(gid_index);
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  for (int i = 0; devices != nullptr && i < count; ++i)
    if (name == ibv_get_device_name(devices[i])) made.context = ibv_open_device(devices[i]);
  if (made.context == nullptr) give_up("no device " + name);
  ibv_free_device_list(devices);
  ibv_port_attr port{};
  require(ibv_query_port(made.context, 1, &port) == 0, "ibv_query_port");
  made.mtu = port.active_mtu;
  require(ibv_query_gid(made.context, 1, gid_index, &made.gid) == 0, "ibv_query_gid");
  made.domain = ibv_alloc_pd(made.context);
  made.completions = ibv_create_cq(made.context, 2 * kQueueDepth, nullptr, nullptr, 0);
  require(made.domain != nullptr && made.completions != nullptr, "ibv_create_cq");
  return made;
}

ibv_qp* create_queue_pair(const Device& device) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = device.completions;
  wanted.recv_cq = device.completions;
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap.max_send_wr = kQueueDepth;
  wanted.cap.max_recv_wr = 1;
  wanted.cap.max_send_sge = 1;
  wanted.cap.max_recv_sge = 1;
  wanted.cap.max_inline_data = kInlineBytes;
  ibv_qp* const made = ibv_create_qp(device.domain, &wanted);
  require(made != nullptr, "ibv_create_qp");
  return made;
}

void connect(const Device& device, ibv_qp* queue_pair, std::uint32_t other) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = 1;
  to.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  require(ibv_modify_qp(queue_pair, &to,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
          "to INIT");
  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = device.mtu;
  to.dest_qp_num = other;
  to.max_dest_rd_atomic = 128;
  to.min_rnr_timer = 12;
  to.ah_attr.is_global = 1;
  to.ah_attr.port_num = 1;
  to.ah_attr.grh.dgid = device.gid;
  to.ah_attr.grh.sgid_index = device.gid_index;
  to.ah_attr.grh.hop_limit = 64;
  require(ibv_modify_qp(queue_pair, &to,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
          "to RTR");
  to.qp_state = IBV_QPS_RTS;
  to.timeout = 18;  // an emulated processor is slow
  to.retry_cnt = 7;
  to.rnr_retry = 7;
  to.max_rd_atomic = 128;
  require(ibv_modify_qp(queue_pair, &to,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
          "to RTS");
}

ibv_mr* register_pages(const Device& device, std::size_t bytes) {
  constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                               IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  ibv_mr* const made = ibv_reg_mr(device.domain, populated_pages(bytes), bytes, kAccess);
  require(made != nullptr, "ibv_reg_mr");
  return made;
}

class VerbsClient final : public PipelinedClient {
 public:
  VerbsClient(const Device& device, std::size_t region_bytes)
      : device_{device},
        queue_pair_{create_queue_pair(device)},
        region_{register_pages(device, region_bytes)},
        slots_{register_pages(device, kSlotsBytes)} {
    ibv_qp* const other = create_queue_pair(device);
    connect(device, queue_pair_, other->qp_num);
    connect(device, other, queue_pair_->qp_num);
  }

  bool prepare(const Job& job) override {
    if (job.depth > kQueueDepth || job.depth * job.block_bytes > kSlotsBytes) return false;
    begin(job, region_->length);
    return true;
  }

  std::size_t advance() override {
    while (in_flight_ < job_.depth) post();
    return collect();
  }

 private:
  void post() {
    ibv_sge local{reinterpret_cast<std::uintptr_t>(slots_->addr) + place_ * job_.block_bytes,
                  static_cast<std::uint32_t>(job_.block_bytes), slots_->lkey};
    place_ = (place_ + 1) % job_.depth;
    const std::uint64_t at = reinterpret_cast<std::uintptr_t>(region_->addr) + blocks_->next();
    ibv_send_wr request{};
    request.sg_list = &local;
    request.num_sge = 1;
    request.send_flags = IBV_SEND_SIGNALED;
    if (job_.op == Op::kRead || job_.op == Op::kWrite) {
      const bool writes = job_.op == Op::kWrite;
      request.opcode = writes ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
      if (writes && job_.block_bytes <= kInlineBytes) request.send_flags |= IBV_SEND_INLINE;
      request.wr.rdma.remote_addr = at;
      request.wr.rdma.rkey = region_->rkey;
    } else {
      request.opcode =
          job_.op == Op::kFetchAdd ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
      request.wr.atomic.remote_addr = at;
      request.wr.atomic.rkey = region_->rkey;
      request.wr.atomic.compare_add = job_.op == Op::kFetchAdd ? 1 : 0;
    }
    ibv_send_wr* bad = nullptr;
    require(ibv_post_send(queue_pair_, &request, &bad) == 0, "ibv_post_send");
    ++in_flight_;
  }

  std::size_t collect() override {
    std::array<ibv_wc, 32> found{};
    int count = 0;
    while (count == 0) {
      count = ibv_poll_cq(device_.completions, static_cast<int>(found.size()), found.data());
      require(count >= 0, "ibv_poll_cq");
    }
    for (int i = 0; i < count; ++i)
      if (found[static_cast<std::size_t>(i)].status != IBV_WC_SUCCESS)
        give_up(ibv_wc_status_str(found[static_cast<std::size_t>(i)].status));
    in_flight_ -= static_cast<std::size_t>(count);
    return static_cast<std::size_t>(count);
  }

  Device device_;
  ibv_qp* queue_pair_;
  ibv_mr* region_;
  ibv_mr* slots_;
};

}  // namespace
}  // namespace remora::bench

int main(int argc, char** argv) {
  using namespace remora::bench;  // NOLINT(google-build-using-namespace)
  const Arguments arguments{argc, argv};
  pin_to_core(arguments.number("--core", 1));
  VerbsClient client{open_device(arguments.text("--device", "rxe0"), arguments.number("--gid", 0)),
                     arguments.region_bytes()};
  return answer_jobs(client, nullptr);
}
