#pragma once

/// Regions of a volume that none of its groups uses: an interrupted rebuild, growth or move leaves
/// them, and a member that was removed.

#include <cstdint>
#include <functional>
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
/// groups `kept`, and those that may hold bytes which the records have forgotten: after a restore
/// of the store to a time before a growth or a rebuild. Returns their number. `left` gets a
/// sentence for each region that stays. Servers that do not answer are passed over.
///
/// `still_ours`, called when all regions were listed: whether the volume's key has had the value of
/// `layout` up to now, so that none of the regions is another client's. An error: none is removed.
/// `stop`, which may be empty, is asked before each server and each region. True: the others stay.
std::uint64_t remove_orphans(const VolumeLayout& layout, MemberRegions& regions,
                             const std::set<std::uint64_t>& kept,
                             const std::function<Status()>& still_ours,
                             std::vector<std::string>& left, const std::function<bool()>& stop);

}  // namespace remora::volume::detail
