#pragma once

/// What the data path needs to know of a group's configuration.

#include <cstdint>
#include <type_traits>

#include "member_set.h"

namespace remora::volume::detail {

/// Small enough for one atomic load. A value.
struct alignas(8) GroupRoles {
  MemberSet in_sync{};
  MemberSet syncing{};       ///< that has missed no write
  std::uint8_t primary = 0;  ///< its slot
  bool promoting = false;
  bool may_post = false;         ///< every member's header is that of the configuration
  bool may_acknowledge = false;  ///< besides, neither promoting nor frozen
};
static_assert(sizeof(GroupRoles) == 8 && std::is_trivially_copyable_v<GroupRoles>);

}  // namespace remora::volume::detail
