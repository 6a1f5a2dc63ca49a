#pragma once

/// A grant as the server's side of a transport makes it: the right of one session to one region.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include <remora/engine/types.h>
#include <remora/result.h>

#include "base/unique_fd.h"
#include "transport/grant_handle.h"
#include "transport/wire_extent.h"

namespace remora::transport {

/// A contiguous range of server memory. The pool owns the bytes.
struct MemoryStretch {
  std::byte* address = nullptr;
  std::uint64_t length_bytes = 0;
};

/// The memory of a region, as a transport sees it when it makes a grant.
struct GrantRequest {
  std::span<const MemoryStretch> extents;
  Rights rights = Rights::kNone;
  int memory_fd = -1;  ///< the region's own memfd if clients may map it
  /// The CPU carries out atomics: the region's atomic domain is `cpu`.
  bool cpu_atomics = false;
  /// The region's epoch. Grants of different epochs share no key or registration.
  std::uint64_t epoch = 0;
  /// The keys of the extents that the client holds from the previous process, and which it must get
  /// again. Empty: new keys. Only for a transport that chooses its keys itself (tcp).
  std::span<const std::uint32_t> keys{};
  /// The address at which the client has reached the first extent since the previous process, and
  /// which must stay the same. 0: any address. Used by rdma.
  std::uint64_t address = 0;
  std::string atomic_domain{};  ///< of the region: "none", "cpu" or the name of a device
  /// Ends a registration of the grant's memory, also a later one, between two extents.
  std::stop_token stop{};
};

struct Grant {
  std::unique_ptr<GrantHandle> handle;
  std::vector<WireExtent> extents;
  LaneKeys lane_keys{};               ///< without lanes: the extents hold one key for all lanes
  std::vector<UniqueFd> descriptors;  ///< sent with the first page of extents
};

}  // namespace remora::transport
