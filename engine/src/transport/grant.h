#pragma once

/// A grant as the server's side of a transport makes it: one session's right to one region.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <remora/engine/types.h>
#include <remora/result.h>

#include "base/unique_fd.h"
#include "transport/grant_handle.h"
#include "transport/wire_extent.h"

namespace remora::transport {

/// A stretch of server memory. The pool owns the bytes.
struct MemoryStretch {
  std::byte* address = nullptr;
  std::uint64_t length_bytes = 0;
};

/// The memory of a region, as a transport sees it when it makes a grant.
struct GrantRequest {
  std::span<const MemoryStretch> extents;
  Rights rights = Rights::kNone;
  int memory_fd = -1;  ///< the region's own memfd when clients may map it, else -1
  /// The CPU carries out atomics: the region's atomic domain is `cpu`.
  bool cpu_atomics = false;
  /// Of the region. Grants of different epochs share nothing that a client can reach it by.
  std::uint64_t epoch = 0;
  /// The keys of the extents that the client holds from the process before, and which are to be
  /// theirs again. Empty: new ones. Only where keys are the transport's own to choose (tcp).
  std::span<const std::uint32_t> keys{};
  /// The address at which the client reaches the first extent since the process before, and which
  /// is to stay. 0: any. Over rdma.
  std::uint64_t address = 0;
  std::string atomic_domain{};  ///< of the region: "none", "cpu" or the name of a device
};

struct Grant {
  std::unique_ptr<GrantHandle> handle;
  std::vector<WireExtent> extents;
  LaneKeys lane_keys{};               ///< no lanes: one key for all of them, in the extents
  std::vector<UniqueFd> descriptors;  ///< sent with the first page of extents
};

}  // namespace remora::transport
