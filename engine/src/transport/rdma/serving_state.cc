#include "transport/rdma/serving_state.h"

#include <chrono>

#include "transport/rdma/session_probe.h"

namespace remora::transport::rdma {

namespace {

constexpr std::chrono::seconds kProbePause{1};

/// True: the server lacks something. False: the client has done something wrong.
bool is_shortage(const Error& why) noexcept {
  switch (why.code()) {
    case Code::kOutOfMemory:
    case Code::kLimitExceeded:
    case Code::kProvider:
    case Code::kSystem: return true;
    default: return why.reason() == Reason::kMemlock;
  }
}

}  // namespace

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
  // Without the lock, so that the control thread does not wait for a device.
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
