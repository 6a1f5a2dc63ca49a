#pragma once

/// The access rights of the client's own registrations.

#include <remora/verbs/access.h>
#include <remora/verbs/device.h>

namespace remora::transport::rdma {

/// The access for memory that requests of this process read from and write to. An iWARP device
/// writes the bytes of a read as if the peer had written them, so the registration needs the remote
/// write right; since its keys are sent to the server, each server has a domain of its own there. A
/// NIC may write the bytes of one read in any order, since the engine reads them only after the
/// completion, which is written last; a software device does not use that freedom.
[[nodiscard]] inline verbs::Access local_access(const verbs::Device& device) noexcept {
  verbs::Access access = verbs::Access::kLocalWrite;
  if (device.is_iwarp()) access |= verbs::Access::kRemoteWrite;
  if (!device.is_software()) access |= verbs::Access::kRelaxedOrdering;
  return access;
}

}  // namespace remora::transport::rdma
