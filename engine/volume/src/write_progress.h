#pragma once

/// The order in which a write reaches the members of a group.

#include <cstddef>
#include <cstdint>

#include "group_roles.h"
#include "member_set.h"

namespace remora::volume::detail {

/// Which members a write is for, and in which order.
enum class Spread : std::uint8_t {
  kBackupsFirst,  ///< all; the primary, which readers read, last
  kAtOnce,        ///< all: marks, headers, writes of an exclusive volume
  kNotPrimary,    ///< all others: a zone that is made equal
  kSyncing        ///< a member that is built
};

/// Of one write: the members that have it. Members that leave the configuration need not have it
/// any more. No I/O. A value.
class WriteProgress {
 public:
  explicit WriteProgress(Spread spread) noexcept : spread_{spread} {}

  /// The members to post to now; empty: each member that needs the write has it.
  [[nodiscard]] MemberSet next(const GroupRoles& roles) const noexcept {
    const MemberSet primary = MemberSet::of(roles.primary);
    const MemberSet all = roles.in_sync.with(roles.syncing).without(done_);
    switch (spread_) {
      case Spread::kSyncing: return roles.syncing.without(done_);
      case Spread::kNotPrimary: return all.without(primary);
      case Spread::kBackupsFirst:
        if (const MemberSet backups = all.without(primary); !backups.empty()) return backups;
        return all;
      case Spread::kAtOnce: break;
    }
    return all;
  }
  void posted() noexcept { posted_ = true; }
  void done(std::size_t slot) noexcept { done_ = done_.with(MemberSet::of(slot)); }
  /// Whether any member may have it.
  [[nodiscard]] bool was_posted() const noexcept { return posted_; }

 private:
  MemberSet done_{};
  Spread spread_;
  bool posted_ = false;
};

}  // namespace remora::volume::detail
