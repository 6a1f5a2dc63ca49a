#include "member_slots.h"

#include <algorithm>
#include <utility>

#include <remora/assert.h>

namespace remora::volume::detail {

void MemberSlots::put(std::size_t slot, const Member& record,
                      std::shared_ptr<MirrorMember> member) {
  slots_[slot].record = record;
  slots_[slot].present.store(member.get(), std::memory_order_release);
  slots_[slot].member = std::move(member);
}

bool MemberSlots::replace(std::size_t slot, std::shared_ptr<MirrorMember> member) {
  if (replaced_.size() >= kReplacedMax) return false;
  replaced_.push_back(slots_[slot].member);
  slots_[slot].present.store(member.get(), std::memory_order_release);
  slots_[slot].member = std::move(member);
  return true;
}

std::optional<std::size_t> MemberSlots::find(std::string_view region) const noexcept {
  for (std::size_t slot = 0; slot < slots_.size(); ++slot)
    if (slots_[slot].member != nullptr && slots_[slot].record.region == region) return slot;
  return std::nullopt;
}

std::size_t MemberSlots::free_slot(const GroupRecord& record) const noexcept {
  const auto used = [&](const Slot& slot) {
    return std::any_of(record.members.begin(), record.members.end(), [&](const Member& each) {
      return slot.member != nullptr && each.region == slot.record.region;
    });
  };
  const auto found = std::find_if_not(slots_.begin(), slots_.end(), used);
  REMORA_ASSERT(found != slots_.end(), "a group has at most kCopiesMax members beside a new one");
  return static_cast<std::size_t>(found - slots_.begin());
}

GroupRoles MemberSlots::roles_of(const GroupRecord& record) const noexcept {
  GroupRoles roles;
  roles.promoting = record.promoting;
  for (std::size_t i = 0; i < record.members.size(); ++i) {
    const auto slot = find(record.members[i].region);
    REMORA_ASSERT(slot.has_value(), "each member of an adopted group has a slot");
    const MemberSet self = MemberSet::of(*slot);
    if (record.members[i].state == MemberState::kInSync)
      roles.in_sync = roles.in_sync.with(self);
    else
      roles.syncing = roles.syncing.with(self);
    if (i == 0) roles.primary = static_cast<std::uint8_t>(*slot);
  }
  return roles;
}

}  // namespace remora::volume::detail
