#include "mirror_work.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "group_changes.h"
#include "mirror_layout.h"
#include "orphan_regions.h"
#include "volume_builder.h"

namespace remora::volume::detail {

std::string describe(const Failure& failure) {
  std::ostringstream text;
  if (!failure.detail.empty()) text << failure.detail << ": ";
  text << failure.error;
  return text.str();
}

void add(MaintenanceReport& to, const MaintenanceReport& more) {
  to.groups += more.groups;
  to.members_added += more.members_added;
  to.members_moved += more.members_moved;
  to.bytes_copied += more.bytes_copied;
  to.regions_removed += more.regions_removed;
  to.cleared = to.cleared || more.cleared;
  to.left.insert(to.left.end(), more.left.begin(), more.left.end());
}

MirrorWork::MirrorWork(ClaimedVolume& volume, MemberRegions& regions, const VolumeLayout& layout,
                       const MaintenanceOptions& options)
    : volume_{volume},
      regions_{regions},
      layout_{layout},
      pace_{options.bytes_per_second_max, options.stop},
      restorer_{volume, regions, layout, options, pace_} {
  report_.groups = volume.group_count();
}

MaintenanceReport MirrorWork::report() const {
  MaintenanceReport all = report_;
  add(all, restorer_.report());
  return all;
}

std::uint64_t MirrorWork::bytes_of_group() const { return volume_.zone_count() * kZoneBytes; }

Managed<void> MirrorWork::note(Managed<void> done) {
  if (done) return done;
  if (done.error().error.code() == Code::kCancelled) return done;
  if (!volume_.claimed())
    return failure(
        Error{Code::kStaleRegion, "claim of a volume"}.with_subject(volume_.volume().name),
        "another client has claimed the volume meanwhile: " + describe(done.error()));
  report_.left.push_back(describe(done.error()));
  return {};
}

void MirrorWork::remove_orphans() {
  std::set<std::uint64_t> kept;
  for (std::uint32_t i = 0; i < volume_.group_count(); ++i)
    if (!volume_.group_open(i)) kept.insert(i);
  report_.regions_removed += detail::remove_orphans(
      layout_, regions_, kept, [this] { return volume_.confirm(); }, report_.left);
}

std::string MirrorWork::why_closed(std::uint32_t group) const {
  const std::string where = volume_.volume().name + ", group " + std::to_string(group) + ": ";
  if (is_restored(layout_.groups[group], layout_.generation))
    return where +
           "its record was restored, and a member that it names was not reached, or is newer; "
           "start its servers, or let 'remora volume repair --from-headers' make the record anew";
  return where +
         "no server with its bytes was reached; start its servers, or let 'remora volume "
         "accept-loss' make it zeros";
}

Managed<void> MirrorWork::restore_copies() {
  for (std::uint32_t i = 0; i < volume_.group_count(); ++i)
    if (volume_.group_open(i)) restorer_.expect_bytes(restorer_.missing(i) * bytes_of_group());
  for (std::uint32_t i = 0; i < volume_.group_count(); ++i) {
    if (!volume_.group_open(i)) {
      report_.left.push_back(why_closed(i));
      continue;
    }
    if (auto trimmed = note(restorer_.trim(i, layout_.draining)); !trimmed) return trimmed;
    if (auto restored = note(restorer_.restore(i)); !restored) return restored;
  }
  return {};
}

Managed<void> MirrorWork::empty_server(const std::string& server) {
  std::vector<PlannedMove> moves;
  for (std::uint32_t i = 0; i < volume_.group_count(); ++i) {
    if (!volume_.group_open(i)) continue;
    for (const Member& member : volume_.group(i).members)
      if (member.server == server) moves.push_back({i, member.region, {}});
  }
  restorer_.expect_bytes(moves.size() * bytes_of_group());
  for (const PlannedMove& move : moves)
    if (auto moved = note(restorer_.move(static_cast<std::uint32_t>(move.group), move.region,
                                         move.target, {server}));
        !moved)
      return moved;
  return {};
}

Managed<void> MirrorWork::rebalance() {
  std::vector<GroupRecord> groups;
  for (std::uint32_t i = 0; i < volume_.group_count(); ++i)
    if (volume_.group_open(i)) groups.push_back(volume_.group(i));
  const std::vector<PlannedMove> moves =
      plan_moves({.groups = groups,
                  .servers = layout_.servers,
                  .draining = layout_.draining,
                  .region_bytes = mirror_region_bytes(volume_.volume().group_bytes),
                  .allow_same_domain = volume_.volume().allow_same_domain});
  restorer_.expect_bytes(moves.size() * bytes_of_group());
  for (const PlannedMove& move : moves)
    if (auto moved = note(
            restorer_.move(static_cast<std::uint32_t>(move.group), move.region, move.target, {}));
        !moved)
      return moved;
  return {};
}

}  // namespace remora::volume::detail
