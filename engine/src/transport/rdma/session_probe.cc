#include "transport/rdma/session_probe.h"

#include <array>
#include <chrono>
#include <utility>

#include <remora/verbs/verbs.h>

#include "transport/rdma/control_buffers.h"
#include "transport/rdma/server_endpoint.h"
#include "transport/rdma/wire.h"

namespace remora::transport::rdma {

namespace {

constexpr std::chrono::seconds kProbePause{1};

/// Whether the server lacks something, or the client has done something wrong.
bool is_shortage(const Error& why) noexcept {
  switch (why.code()) {
    case Code::kOutOfMemory:
    case Code::kLimitExceeded:
    case Code::kProvider:
    case Code::kSystem: return true;
    default: return why.reason() == Reason::kMemlock;
  }
}

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

void ServingState::note(const Error& why) {
  if (!is_shortage(why)) return;
  const remora::detail::MutexLock lock{mutex_};
  failure_ = why;
}

Status ServingState::check(std::span<const verbs::Device> devices) {
  {
    const remora::detail::MutexLock lock{mutex_};
    if (!failure_) return {};
    const auto now = Clock::now();
    if (now - probed_at_ < kProbePause) return probed_.value_or(*failure_);
    probed_at_ = now;
  }
  // Without the lock: the control thread must not wait for a device.
  const Status probed = probe_session(devices);
  const remora::detail::MutexLock lock{mutex_};
  probed_ = probed;
  if (probed)
    failure_.reset();
  else
    failure_ = probed.error();
  return probed;
}

}  // namespace remora::transport::rdma
