#pragma once

/// The changes of a group's configuration, as the rules of engine/docs/volumes.md allow them.
/// Functions of values: the transactions are those of GroupKey. Each raises `epoch` and has a nonce
/// of its own, but for with_new_nonce(), which leaves the configuration.

#include <cstdint>
#include <span>
#include <string_view>

#include <remora/result.h>
#include <remora/volume/records.h>

namespace remora::volume::detail {

/// Whether the group's key was written under another generation: the store was restored since, and
/// no claimant has adopted the group (rules 29, 30).
[[nodiscard]] bool is_restored(const GroupRecord& group, std::uint64_t generation) noexcept;

/// How many members are in sync.
[[nodiscard]] std::uint32_t in_sync_count(const GroupRecord& group) noexcept;

/// Rule 8: the members that are in sync and that the claimant has fenced, `fenced[i]` for
/// members[i]. Promoting, if the primary is not among them. Errors: kUnreachable: none is left, or
/// one of a restored group is missing.
Result<GroupRecord> adopted(const GroupRecord& group, std::uint64_t writer_epoch,
                            std::uint64_t generation, std::span<const bool> fenced);
/// Rules 18, 19: without the member of that region. If it was the primary, the next member in sync
/// is, and the group is promoting. Errors: kBusy (the last one in sync), kNotFound.
Result<GroupRecord> without_member(const GroupRecord& group, std::string_view region);
/// Rule 20: readers may read the new primary. Errors: kBusy (it is not promoting).
Result<GroupRecord> with_promotion_ended(const GroupRecord& group);
/// Rule 25: a new member, syncing. Errors: kBusy (promoting, or there is a syncing one),
/// kAlreadyExists (a member of that region), kLimitExceeded.
Result<GroupRecord> with_syncing(const GroupRecord& group, const Member& member);
/// Rule 26: the syncing member is in sync. Errors: kNotFound.
Result<GroupRecord> with_in_sync(const GroupRecord& group);
/// Rule 2: the same configuration in another value.
[[nodiscard]] GroupRecord with_new_nonce(const GroupRecord& group);

}  // namespace remora::volume::detail
