#pragma once

/// Brings the groups of a claimed mirror to the members that they shall have.

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <remora/engine/region.h>
#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/volume/cluster.h>
#include <remora/volume/maintenance.h>
#include <remora/volume/management.h>
#include <remora/volume/placement.h>
#include <remora/volume/records.h>
#include <remora/volume/volume_options.h>

#include "claimed_volume.h"
#include "copy_pace.h"
#include "member_regions.h"

namespace remora::volume::detail {

/// Adds members (rules 25 and 26 of docs/volumes.md), moves them, and removes those that are too
/// many. A member that could not be completed is removed again, with its region. Several threads
/// may work at once, each on a group of its own.
class GroupRestorer {
 public:
  /// All are borrowed. `layout`: read after the claim; for the servers.
  GroupRestorer(ClaimedVolume& volume, MemberRegions& regions, const VolumeLayout& layout,
                const MaintenanceOptions& options, CopyPace& pace);

  /// Adds members until the group has `copies` in sync. Errors: kLimitExceeded (no server has the
  /// room and a failure domain of its own); kCancelled; those of ClaimedVolume and MemberRegions.
  Managed<void> restore(std::uint32_t group);
  /// Removes members in sync that are more than `copies`: an interrupted move leaves one. First
  /// those on the servers `leaving`, then backups.
  Managed<void> trim(std::uint32_t group, const std::vector<std::string>& leaving);
  /// Puts the member with that region on another server: on `target`, or, if that is empty, on the
  /// one that place_replacement() chooses outside `excluded`.
  Managed<void> move(std::uint32_t group, const std::string& region, const std::string& target,
                     const std::vector<std::string>& excluded);

  /// For the progress: the bytes that the work will copy.
  void expect_bytes(std::uint64_t bytes);
  [[nodiscard]] MaintenanceReport report() const;
  [[nodiscard]] std::uint32_t missing(std::uint32_t group) const;
  /// Whether no server had the room: one that another group leaves may have it later.
  [[nodiscard]] static bool lacks_room(const Failure& failure) noexcept;

 private:
  struct Wanted {
    std::vector<std::string> kept{};      ///< servers of the other members
    std::vector<std::string> excluded{};  ///< these get no member
    std::string target{};                 ///< this server; empty: any
  };
  /// Adds one member, on up to kTries servers.
  Managed<void> add(std::uint32_t group, Wanted wanted);
  /// Makes the region, and the member of it.
  Managed<void> build(std::uint32_t group, const ServerRecord& server, const RegionSpec& spec);
  /// Copies to the member that was added, and makes it in sync; else gives it up.
  Managed<void> complete(std::uint32_t group, const Member& member);
  Managed<void> copy(std::uint32_t group, const std::string& server);
  void give_up(std::uint32_t group, const Member& member);
  Managed<void> remove(std::uint32_t group, const Member& member);
  /// Chooses a server, and takes the region's bytes off what it has free, so that no other group
  /// counts on them.
  [[nodiscard]] std::optional<ServerRecord> reserve(const Wanted& wanted);
  /// The region is not there, or is removed again.
  void give_back(const std::string& server);
  /// Tells of a copy on that server.
  void tell(std::uint32_t group, const std::string& server, VolumeEventKind kind,
            const Status& done) const;
  Managed<RegionSpec> spec_for(std::uint32_t group);
  [[nodiscard]] ClaimedVolume::Time until() const {
    return std::chrono::steady_clock::now() + options_.step_limit;
  }
  /// One more zone was copied, `zones` of the group.
  void count_zone(std::uint32_t group, const std::string& server, std::uint32_t zones);

  /// Removes the region of a member that the group does not have any more.
  Status discard(const Member& member);

  ClaimedVolume& volume_;
  MemberRegions& regions_;
  const VolumeLayout& layout_;
  const MaintenanceOptions& options_;
  CopyPace& pace_;
  mutable remora::detail::Mutex mutex_;
  /// Those that may get members. Their free bytes count the regions that were made here.
  std::vector<ServerRecord> servers_ REMORA_GUARDED_BY(mutex_);
  /// Servers that could not take a member.
  std::set<std::string> failed_ REMORA_GUARDED_BY(mutex_);
  MaintenanceReport report_ REMORA_GUARDED_BY(mutex_);
  std::uint64_t all_bytes_ REMORA_GUARDED_BY(mutex_) = 0;
};

}  // namespace remora::volume::detail
