#include "mirror_work.h"

#include <algorithm>
#include <numeric>
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
      groups_at_once_{std::clamp(options.groups_at_once, 1U, kGroupsAtOnceMax)},
      jobs_{[this](const Failure& failed) { return ending(failed); }},
      pace_{options.bytes_per_second_max,
            [this, stop = options.stop] { return jobs_.ended() || (stop && stop()); }},
      restorer_{volume, regions, layout, options, pace_} {
  report_.groups = volume.group_count();
}

MaintenanceReport MirrorWork::report() const {
  MaintenanceReport all = report_;
  add(all, restorer_.report());
  return all;
}

std::uint64_t MirrorWork::bytes_of_group() const { return volume_.zone_count() * kZoneBytes; }

std::optional<Failure> MirrorWork::ending(const Failure& failed) const {
  if (failed.error.code() == Code::kCancelled) return failed;
  if (volume_.claimed()) return std::nullopt;
  return Failure{Error{Code::kStaleRegion, "claim of a volume"}.with_subject(volume_.volume().name),
                 "another client has claimed the volume meanwhile: " + describe(failed)};
}

Managed<void> MirrorWork::run(const std::vector<GroupJobs::Job>& jobs) {
  GroupJobs::Failures failures(jobs.size());
  std::vector<std::size_t> chosen(jobs.size());
  std::iota(chosen.begin(), chosen.end(), std::size_t{0});
  for (std::size_t at_once = groups_at_once_; !chosen.empty(); at_once = 1) {
    if (auto done = jobs_.run(jobs, chosen, at_once, failures); !done) return done;
    std::vector<std::size_t> again;
    for (const std::size_t index : chosen)
      if (failures[index] && GroupRestorer::lacks_room(*failures[index])) again.push_back(index);
    // Another group may have left the room meanwhile; if none has, there is none.
    if (at_once == 1 && again.size() == chosen.size()) break;
    chosen = std::move(again);
  }
  for (const std::optional<Failure>& failure : failures)
    if (failure) report_.left.push_back(describe(*failure));
  return {};
}

Managed<void> MirrorWork::run_moves(const std::vector<PlannedMove>& moves,
                                    const std::vector<std::string>& excluded) {
  restorer_.expect_bytes(moves.size() * bytes_of_group());
  std::vector<std::vector<PlannedMove>> by_group;  // a group has one syncing member at a time
  for (const PlannedMove& move : moves) {
    const auto found = std::find_if(by_group.begin(), by_group.end(), [&](const auto& each) {
      return each.front().group == move.group;
    });
    if (found == by_group.end())
      by_group.push_back({move});
    else
      found->push_back(move);
  }
  std::vector<GroupJobs::Job> jobs;
  jobs.reserve(by_group.size());
  for (const std::vector<PlannedMove>& of_group : by_group)
    jobs.emplace_back([this, &of_group, &excluded] { return carry_out(of_group, excluded); });
  return run(jobs);
}

Managed<void> MirrorWork::carry_out(const std::vector<PlannedMove>& moves,
                                    const std::vector<std::string>& excluded) {
  for (const PlannedMove& move : moves)
    if (auto moved = restorer_.move(static_cast<std::uint32_t>(move.group), move.region,
                                    move.target, excluded);
        !moved)
      return moved;
  return {};
}

void MirrorWork::remove_orphans(const std::function<bool()>& stop) {
  std::set<std::uint64_t> kept;
  for (std::uint32_t i = 0; i < volume_.group_count(); ++i)
    if (!volume_.group_open(i)) kept.insert(i);
  report_.regions_removed += detail::remove_orphans(
      layout_, regions_, kept, [this] { return volume_.confirm(); }, report_.left, stop);
}

std::string MirrorWork::why_closed(std::uint32_t group) const {
  if (const Status done = volume_.adoption(group);
      !done && done.error().reason() == Reason::kVersion)
    return done.error().message();
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
  std::vector<GroupJobs::Job> jobs;
  for (std::uint32_t i = 0; i < volume_.group_count(); ++i) {
    if (!volume_.group_open(i)) {
      report_.left.push_back(why_closed(i));
      continue;
    }
    restorer_.expect_bytes(restorer_.missing(i) * bytes_of_group());
    jobs.emplace_back([this, i]() -> Managed<void> {
      if (auto trimmed = restorer_.trim(i, layout_.draining); !trimmed) return trimmed;
      return restorer_.restore(i);
    });
  }
  return run(jobs);
}

Managed<void> MirrorWork::empty_server(const std::string& server) {
  std::vector<PlannedMove> moves;
  for (std::uint32_t i = 0; i < volume_.group_count(); ++i) {
    if (!volume_.group_open(i)) continue;
    for (const Member& member : volume_.group(i).members)
      if (member.server == server) moves.push_back({i, member.region, {}});
  }
  return run_moves(moves, {server});
}

Managed<void> MirrorWork::rebalance() {
  std::vector<GroupRecord> groups;
  for (std::uint32_t i = 0; i < volume_.group_count(); ++i)
    if (volume_.group_open(i)) groups.push_back(volume_.group(i));
  return run_moves(plan_moves({.groups = groups,
                               .servers = layout_.servers,
                               .draining = layout_.draining,
                               .region_bytes = mirror_region_bytes(volume_.volume().group_bytes),
                               .allow_same_domain = volume_.volume().allow_same_domain}),
                   {});
}

}  // namespace remora::volume::detail
