#pragma once

/// Regions of a volume that none of its groups uses: an interrupted rebuild, growth or move leaves
/// them, and a member that was removed.

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <remora/volume/cluster.h>

#include "member_regions.h"

namespace remora::volume::detail {

/// The index of the group in a region_name(); UINT64_MAX: it is none of that volume.
[[nodiscard]] std::uint64_t group_of_region(std::uint64_t volume_id, std::string_view region);

/// Removes such regions on all servers that are registered or have members, except those of the
/// groups `kept`. `layout` must have been read since a change of the volume's key by this client,
/// so that no other client's change can name them any more. Returns their number. `left` gets a
/// sentence for each region that could not be removed. Servers that do not answer are passed over.
std::uint64_t remove_orphans(const VolumeLayout& layout, MemberRegions& regions,
                             const std::set<std::uint64_t>& kept, std::vector<std::string>& left);

}  // namespace remora::volume::detail
