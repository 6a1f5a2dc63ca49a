#pragma once

/// How a claimant takes a group over.

#include <chrono>
#include <memory>
#include <string>

#include <remora/result.h>
#include <remora/volume/records.h>

#include "member_opener.h"
#include "mirror_group.h"
#include "mirror_options.h"
#include "volume_claim.h"

namespace remora::volume::detail {

/// Rules 7, 8, 11 and 30: fences the members of the group, then adopts it by one transaction. The
/// group serves after MirrorGroup::repair(). `record` and `value`: read after the claim. `options`
/// and `opener` are borrowed by the group.
///
/// Errors, with the group and the member in the subject: kStaleRegion (it is lost); that of the
/// last fence, if no member in sync can be fenced; of a restored store also that of any member, and
/// kProtocol (a member has a newer header: the operator has to decide); those of the store and the
/// claim.
Result<std::unique_ptr<MirrorGroup>> adopt_group(const std::shared_ptr<VolumeClaim>& claim,
                                                 const GroupRecord& record,
                                                 const std::string& value,
                                                 const MirrorOptions& options, MemberOpener& opener,
                                                 std::chrono::steady_clock::time_point until);

}  // namespace remora::volume::detail
