#pragma once

/// Whether a device's type-2 memory windows keep clients apart that share a protection domain:
/// asked of the device itself, by queue pairs connected within this process.

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
/// namespaces lists the GIDs of all. Nothing: none is of `own`; InfiniBand's GIDs are no addresses.
[[nodiscard]] std::optional<std::uint32_t> choose_own_gid(std::span<const verbs::GidEntry> table,
                                                          std::uint8_t port,
                                                          const std::vector<verbs::Gid>& own);

/// Tries it, with memory and queue pairs of its own, which are gone on return. **Blocks**, at most
/// until `deadline`, but for what the driver itself takes to make and destroy them. A device
/// without windows, without a usable port, or too slow gives untested checks, never an error.
/// Thread-safe.
[[nodiscard]] WindowFindings probe_windows(const verbs::Device& device, verbs::Deadline deadline);

}  // namespace remora::transport::rdma
