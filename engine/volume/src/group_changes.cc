#include "group_changes.h"

#include <algorithm>
#include <string>

namespace remora::volume::detail {

namespace {

constexpr Operation kChange{"configuration of a group"};

Error refused(Code code, const GroupRecord& group, std::string_view what) {
  return Error{code, kChange}.with_subject("group " + std::to_string(group.index) + ", " +
                                           std::string{what});
}

bool in_sync(const Member& member) noexcept { return member.state == MemberState::kInSync; }
bool syncing(const Member& member) noexcept { return member.state == MemberState::kSyncing; }

GroupRecord next_of(const GroupRecord& group) {
  GroupRecord next = group;
  ++next.epoch;
  next.nonce = random_number();
  return next;
}

/// The first member in sync becomes the first of all.
void name_primary(GroupRecord& group) {
  const auto first = std::find_if(group.members.begin(), group.members.end(), in_sync);
  if (first != group.members.end()) std::rotate(group.members.begin(), first, first + 1);
}

}  // namespace

std::uint32_t in_sync_count(const GroupRecord& group) noexcept {
  return static_cast<std::uint32_t>(
      std::count_if(group.members.begin(), group.members.end(), in_sync));
}

bool is_restored(const GroupRecord& group, std::uint64_t generation) noexcept {
  return group.restored || group.generation != generation;
}

Result<GroupRecord> adopted(const GroupRecord& group, std::uint64_t writer_epoch,
                            std::uint64_t generation, std::span<const bool> fenced) {
  GroupRecord next = next_of(group);
  next.adopted = writer_epoch;
  next.generation = generation;
  next.restored = false;
  next.members.clear();
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    if (is_restored(group, generation) && !fenced[i])
      return refused(Code::kUnreachable, group, "member " + group.members[i].server);
    if (in_sync(group.members[i]) && fenced[i]) next.members.push_back(group.members[i]);
  }
  if (next.members.empty()) return refused(Code::kUnreachable, group, "every member in sync");
  if (!(next.members.front() == group.members.front())) next.promoting = true;
  return next;
}

Result<GroupRecord> without_member(const GroupRecord& group, std::string_view region) {
  GroupRecord next = next_of(group);
  const auto gone = std::find_if(next.members.begin(), next.members.end(),
                                 [&](const Member& each) { return each.region == region; });
  if (gone == next.members.end()) return refused(Code::kNotFound, group, region);
  const bool last = in_sync(*gone) && in_sync_count(next) == 1;
  if (last) return refused(Code::kBusy, group, "its last member in sync");
  if (gone == next.members.begin()) next.promoting = true;
  next.members.erase(gone);
  name_primary(next);
  return next;
}

Result<GroupRecord> with_promotion_ended(const GroupRecord& group) {
  if (!group.promoting) return refused(Code::kBusy, group, "it is not promoting");
  GroupRecord next = next_of(group);
  next.promoting = false;
  return next;
}

Result<GroupRecord> with_syncing(const GroupRecord& group, const Member& member) {
  if (group.promoting) return refused(Code::kBusy, group, "its primary changes");
  if (std::any_of(group.members.begin(), group.members.end(), syncing))
    return refused(Code::kBusy, group, "another member is syncing");
  if (std::any_of(group.members.begin(), group.members.end(),
                  [&](const Member& each) { return each.region == member.region; }))
    return refused(Code::kAlreadyExists, group, member.region);
  if (group.members.size() > kCopiesMax)
    return refused(Code::kLimitExceeded, group, "members")
        .with_limit(group.members.size() + 1, kCopiesMax + 1);
  GroupRecord next = next_of(group);
  next.members.push_back(member);
  next.members.back().state = MemberState::kSyncing;
  return next;
}

Result<GroupRecord> with_in_sync(const GroupRecord& group) {
  GroupRecord next = next_of(group);
  const auto found = std::find_if(next.members.begin(), next.members.end(), syncing);
  if (found == next.members.end()) return refused(Code::kNotFound, group, "a syncing member");
  found->state = MemberState::kInSync;
  return next;
}

GroupRecord with_new_nonce(const GroupRecord& group) {
  GroupRecord next = group;
  next.nonce = random_number();
  return next;
}

}  // namespace remora::volume::detail
