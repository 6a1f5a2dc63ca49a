#include <algorithm>
#include <array>
#include <cstddef>

#include <remora/volume/maintenance.h>

namespace remora::volume {

std::string_view to_string(MemberCondition condition) noexcept {
  constexpr std::array<std::string_view, 3> kTexts{"ok", "not registered", "lost: other memory"};
  return kTexts.at(static_cast<std::size_t>(condition));
}

std::string_view to_string(GroupCondition condition) noexcept {
  constexpr std::array<std::string_view, 5> kTexts{"ok", "degraded", "promoting", "unreachable",
                                                   "lost"};
  return kTexts.at(static_cast<std::size_t>(condition));
}

MemberCondition condition_of(const VolumeLayout& layout, const Member& member) noexcept {
  const ServerRecord* const server = layout.find_server(member.server);
  if (server == nullptr) return MemberCondition::kNotRegistered;
  return server->memory_id == member.memory_id ? MemberCondition::kOk
                                               : MemberCondition::kOtherMemory;
}

GroupCondition condition_of(const VolumeLayout& layout, const GroupRecord& group) noexcept {
  std::uint32_t ok = 0;
  std::uint32_t away = 0;
  for (const Member& member : group.members) {
    if (member.state != MemberState::kInSync) continue;
    const MemberCondition condition = condition_of(layout, member);
    ok += condition == MemberCondition::kOk ? 1 : 0;
    away += condition == MemberCondition::kNotRegistered ? 1 : 0;
  }
  if (group.lost || ok + away == 0) return GroupCondition::kLost;
  if (ok == 0) return GroupCondition::kUnreachable;
  if (group.promoting) return GroupCondition::kPromoting;
  return ok < layout.volume.copies ? GroupCondition::kDegraded : GroupCondition::kOk;
}

}  // namespace remora::volume
