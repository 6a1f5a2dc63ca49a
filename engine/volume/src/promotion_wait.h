#pragma once

/// What the end of a promotion waits for.

#include <chrono>
#include <memory>
#include <optional>

#include <remora/volume/records.h>

#include "mirror_member.h"

namespace remora::volume::detail {

/// Rules 21 and 22: whether a reader can still read the old primary.
struct PromotionWait {
  std::chrono::nanoseconds since{0};
  std::optional<Member> old_primary{};  ///< empty: a claimant has found the group promoting
  std::shared_ptr<MirrorMember> member{};
  bool readers_gone = false;
};

}  // namespace remora::volume::detail
