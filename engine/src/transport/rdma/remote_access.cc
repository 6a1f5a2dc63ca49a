#include "transport/rdma/remote_access.h"

namespace remora::transport::rdma {

verbs::Access remote_access(Rights rights) noexcept {
  verbs::Access access = verbs::Access::kNone;
  if (includes(rights, Rights::kRead)) access |= verbs::Access::kRemoteRead;
  if (includes(rights, Rights::kWrite)) access |= verbs::Access::kRemoteWrite;
  if (includes(rights, Rights::kAtomic)) access |= verbs::Access::kRemoteAtomic;
  return access;
}

verbs::Access remote_access(Rights rights, const verbs::Device& device) noexcept {
  const verbs::Access asked = remote_access(rights);
  if (device.attributes().atomics != verbs::AtomicSupport::kNone) return asked;
  return asked & (verbs::Access::kRemoteRead | verbs::Access::kRemoteWrite);
}

}  // namespace remora::transport::rdma
