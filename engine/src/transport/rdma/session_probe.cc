#include "transport/rdma/session_probe.h"

#include <array>
#include <utility>

#include <remora/verbs/verbs.h>

#include "transport/rdma/control_buffers.h"
#include "transport/rdma/server_endpoint.h"
#include "transport/rdma/wire.h"

namespace remora::transport::rdma {

namespace {

Status probe_lane(const verbs::ProtectionDomain& domain) {
  auto queue =
      domain.device().create_completion_queue({.depth = kNoticeReceives + 4, .events = true});
  if (!queue) return queue.error();
  std::array<NoticeBytes, kNoticeReceives> buffers{};
  auto memory =
      domain.register_bytes(std::as_writable_bytes(std::span{buffers}), verbs::Access::kLocalWrite);
  if (!memory) return memory.error();
  verbs::QueuePairBuilder<verbs::Rc> builder{domain, *queue, *queue};
  builder.send_depth(1).receive_depth(kNoticeReceives);
  if (const auto pair = builder.create(); !pair) return pair.error();
  return {};
}

}  // namespace

Status probe_session(const verbs::Device& device) {
  auto domain = device.allocate_domain();
  if (!domain) return domain.error();
  const auto buffers = ControlBuffers::create(*domain);
  if (!buffers) return buffers.error();
  if (const auto control = buffers->builder().create(); !control) return control.error();
  return probe_lane(*domain);
}

Status probe_session(std::span<const verbs::Device> devices) {
  Status first = Error{Code::kNotFound, "RDMA device that can serve"};
  bool any = false;
  for (const verbs::Device& device : devices) {
    const Status probed = probe_session(device);
    if (probed) return {};
    if (!std::exchange(any, true)) first = probed;
  }
  return first;
}

}  // namespace remora::transport::rdma
