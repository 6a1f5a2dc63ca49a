#pragma once

/// Tests whether a device's type-2 memory windows isolate clients that share a protection domain,
/// with queue pairs that are connected within this process.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <remora/verbs/deadline.h>
#include <remora/verbs/device.h>
#include <remora/verbs/gid.h>

#include "transport/rdma/window_findings.h"

namespace remora::transport::rdma {

/// The index of the GID, on that port, with which queue pairs of this network namespace reach each
/// other: one of `own`, the addresses of its interfaces. A device whose interfaces are in several
/// namespaces lists the GIDs of all. Empty: no GID is in `own`; InfiniBand's GIDs are no addresses.
[[nodiscard]] std::optional<std::uint32_t> choose_own_gid(std::span<const verbs::GidEntry> table,
                                                          std::uint8_t port,
                                                          const std::vector<verbs::Gid>& own);

/// Tests the device, with memory and queue pairs of its own, which are destroyed on return.
/// **Blocks** at most until `deadline`, beside the time in which the driver makes and destroys
/// them. A device without windows, without a usable port, or too slow gives untested checks, never
/// an error. Thread-safe.
[[nodiscard]] WindowFindings probe_windows(const verbs::Device& device, verbs::Deadline deadline);

}  // namespace remora::transport::rdma
