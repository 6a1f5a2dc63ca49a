#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace remora::transport {

/// A contiguous range of a region as the server describes it to the client in a grant.
struct WireExtent {
  std::uint64_t start_bytes = 0;  ///< offset in the region
  std::uint64_t length_bytes = 0;
  /// rdma: virtual address; shm: offset in the region's memfd; tcp: offset in the region
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;  ///< rdma: rkey; tcp: index and generation in the session's table
};

/// Keys that differ from lane to lane: the key of extent `e` on lane `l` is keys[e * lanes + l]; 0:
/// there is no such lane.
struct LaneKeys {
  std::size_t lanes = 0;
  std::vector<std::uint32_t> keys{};
};

}  // namespace remora::transport
