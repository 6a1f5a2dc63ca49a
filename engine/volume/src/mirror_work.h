#pragma once

/// The work on a claimed mirror: its groups, several at once.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <remora/volume/cluster.h>
#include <remora/volume/maintenance.h>
#include <remora/volume/management.h>

#include "claimed_volume.h"
#include "copy_pace.h"
#include "group_jobs.h"
#include "group_restorer.h"
#include "member_regions.h"
#include "move_plan.h"

namespace remora::volume::detail {

/// One command's work. A group that fails is named in the report, and the others go on; the work
/// ends at a cancellation, and when the claim is lost: then no group is begun any more, and copies
/// that are not complete are removed. One caller.
class MirrorWork {
 public:
  /// All are borrowed. `layout` must have been read after the claim.
  MirrorWork(ClaimedVolume& volume, MemberRegions& regions, const VolumeLayout& layout,
             const MaintenanceOptions& options);

  /// Removes regions that no group uses, except those of groups that could not be opened, and those
  /// that may hold what the records have forgotten. None, if the claim is lost. `stop` as for
  /// detail::remove_orphans().
  void remove_orphans(const std::function<bool()>& stop = {});
  /// Gives each group its copies, no more and no fewer. Errors: kCancelled; kStaleRegion (the claim
  /// is lost).
  Managed<void> restore_copies();
  /// Moves the volume's members from `server`. Errors: the same.
  Managed<void> empty_server(const std::string& server);
  /// Moves members as plan_moves() says. Errors: the same.
  Managed<void> rebalance();

  [[nodiscard]] MaintenanceReport report() const;

 private:
  /// Carries out a job for each of some groups, and notes what has failed.
  Managed<void> run(const std::vector<GroupJobs::Job>& jobs);
  /// A job for each group that has moves. No server in `excluded` gets a member.
  Managed<void> run_moves(const std::vector<PlannedMove>& moves,
                          const std::vector<std::string>& excluded);
  Managed<void> carry_out(const std::vector<PlannedMove>& moves,
                          const std::vector<std::string>& excluded);
  /// The failure with which the work ends because of this one.
  [[nodiscard]] std::optional<Failure> ending(const Failure& failed) const;
  [[nodiscard]] std::uint64_t bytes_of_group() const;
  /// A sentence about a group that the claim could not open.
  [[nodiscard]] std::string why_closed(std::uint32_t group) const;

  ClaimedVolume& volume_;
  MemberRegions& regions_;
  const VolumeLayout& layout_;
  const std::size_t groups_at_once_;
  GroupJobs jobs_;
  CopyPace pace_;
  GroupRestorer restorer_;
  MaintenanceReport report_;
};

/// "what, where: detail", for a report.
[[nodiscard]] std::string describe(const Failure& failure);

/// Adds up two reports.
void add(MaintenanceReport& to, const MaintenanceReport& more);

}  // namespace remora::volume::detail
