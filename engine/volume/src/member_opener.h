#pragma once

/// How a mirror gets grants on its members. engine_member_opener.h is the engine's; tests have
/// another.

#include <memory>

#include <remora/result.h>
#include <remora/volume/records.h>

#include "mirror_member.h"

namespace remora::volume::detail {

/// Thread-safe. Errors of both: kStaleRegion with Reason::kNewMemory, only if the member's server
/// has answered, and its memory or the region is another than that of the record; those of
/// Engine::open_region().
class MemberOpener {
 public:
  virtual ~MemberOpener() = default;
  MemberOpener(const MemberOpener&) = delete;
  MemberOpener& operator=(const MemberOpener&) = delete;

  /// Takes no other client's grant away.
  virtual Result<std::shared_ptr<MirrorMember>> open(const Member& member) = 0;
  /// Takes every older grant away: when it returns, no operation under one can take effect.
  virtual Result<std::shared_ptr<MirrorMember>> fence(const Member& member) = 0;

 protected:
  MemberOpener() = default;
};

}  // namespace remora::volume::detail
