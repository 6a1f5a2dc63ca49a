#pragma once

/// The configuration of a group, from the headers of its regions.

#include <optional>
#include <vector>

#include <remora/result.h>
#include <remora/volume/records.h>

#include "member_header.h"

namespace remora::volume::detail {

/// A region that was found on a server, with its header.
struct FoundMember {
  Member member{};
  MemberHeader header{};
};

/// `record` with the members whose headers are the newest: they have every acknowledged write,
/// since a writer writes the headers of a configuration on all members before any data (rule 27),
/// and no member is in sync that lacks one. Syncing members are left out. Regions that were
/// removed before the record was written do not count. Without any header that a writer has
/// written: `record`, whose members are all zeroes. Errors: kProtocol (headers of two
/// generations, which cannot be compared); kStaleRegion (no member is in sync among the newest).
Result<GroupRecord> with_newest_members(const GroupRecord& record,
                                        const std::vector<FoundMember>& found);

}  // namespace remora::volume::detail
