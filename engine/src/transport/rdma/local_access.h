#pragma once

/// What the client's own registrations allow.

#include <remora/verbs/access.h>
#include <remora/verbs/device.h>

namespace remora::transport::rdma {

/// For memory that requests of this process read from and write to. An iWARP device writes the
/// bytes of a read as if the peer had written them, so it wants that right: there each server has a
/// domain of its own, since the keys travel. A NIC may write the bytes of one read in any order, as
/// the engine looks at them only after the completion, which is written behind them; a software
/// device has no use for that.
[[nodiscard]] inline verbs::Access local_access(const verbs::Device& device) noexcept {
  verbs::Access access = verbs::Access::kLocalWrite;
  if (device.is_iwarp()) access |= verbs::Access::kRemoteWrite;
  if (!device.is_software()) access |= verbs::Access::kRelaxedOrdering;
  return access;
}

}  // namespace remora::transport::rdma
