#pragma once

/// Makes the region of a member.

#include <cstdint>

#include <remora/engine/region.h>
#include <remora/volume/management.h>
#include <remora/volume/records.h>

#include "member_servers.h"

namespace remora::volume {

/// The bytes of a member's region: those of its group, and of a mirror also header and bitmap.
[[nodiscard]] std::uint64_t region_bytes_of(const VolumeRecord& volume) noexcept;

/// The region of a new member of `group`. `properties`: all but name, size and block.
[[nodiscard]] RegionSpec region_spec_of(const VolumeRecord& volume, std::uint64_t group,
                                        RegionSpec properties);

/// The properties of a member's region, for other regions of its volume.
[[nodiscard]] RegionSpec properties_of(const RegionInfo& region);

/// Creates the region on `server`. After an error `left` says whether the region may be there.
/// Errors: kStaleRegion (the server has other memory than its record); those of MemberServers and
/// Session::create_region().
Managed<Member> make_member(MemberServers& servers, const ServerRecord& server,
                            const RegionSpec& spec, bool& left);

}  // namespace remora::volume
