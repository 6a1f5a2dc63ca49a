#include <memory>
#include <optional>
#include <set>
#include <string>

#include <remora/engine/engine_share.h>
#include <remora/volume/maintenance.h>
#include <remora/volume/volume.h>

#include "claimed_work.h"
#include "decided_commit.h"
#include "engine_member_regions.h"
#include "mirror_volume.h"
#include "orphan_regions.h"
#include "remove_remains.h"
#include "volume_builder.h"
#include "volume_core.h"

namespace remora::volume {
namespace {

/// A striped volume has no claim. Changing its key ends what other clients have begun.
Managed<MaintenanceReport> repair_striped(const Cluster& cluster, const Engine& engine,
                                          const VolumeLayout& found) {
  VolumeRecord taken = found.volume;
  taken.nonce = random_number();
  const std::string key = cluster.keys().volume(taken.name);
  const auto begun =
      commit_decided(cluster, {{cluster.generation_is(found.generation), {key, found.volume_value}},
                               {{key, to_json(taken), kNoLease}}});
  if (!begun) return failure(begun.error());
  if (!*begun)
    return failure(
        Error{Code::kBusy, "volume that another client changes"}.with_subject(taken.name));
  auto layout = cluster.layout(taken.name);
  if (!layout) return failure(layout.error());
  // Another client has taken it since: its new groups are no remains.
  if (layout->volume_value != to_json(taken))
    return failure(
        Error{Code::kBusy, "volume that another client changes"}.with_subject(taken.name));
  if (auto removed = detail::remove_extra_groups(cluster, *layout); !removed)
    return tl::unexpected<Failure>{removed.error()};
  MaintenanceReport report;
  report.groups = layout->groups.size();
  detail::EngineMemberRegions regions{engine};
  std::set<std::uint64_t> kept;
  for (const GroupRecord& group : layout->groups) {
    const GroupCondition condition = condition_of(*layout, group);
    if (condition == GroupCondition::kOk) continue;
    kept.insert(group.index);
    report.left.push_back(taken.name + ", group " + std::to_string(group.index) + ": " +
                          std::string{to_string(condition)} +
                          ", and a striped volume has no other copy");
  }
  const auto still_ours = [&]() -> Status {
    const auto now = get_one(cluster.store(), key, cluster.limit());
    if (!now) return now.error();
    if (*now && (*now)->value == layout->volume_value) return {};
    return Error{Code::kBusy, "volume that another client changes"}.with_subject(taken.name);
  };
  report.regions_removed =
      detail::remove_orphans(*layout, regions, kept, still_ours, report.left, {});
  return report;
}

tl::unexpected<Failure> not_claimed(const std::string& volume) {
  return failure(Error{Code::kInvalidArgument, "repair volume"}.with_subject(volume),
                 "this process has no claim of the volume");
}

/// The repair of a claimed mirror, as long as it lives.
class RepairTurn {
 public:
  explicit RepairTurn(detail::MirrorWriter& writer) noexcept
      : writer_{writer}, begun_{writer.begin_repair()} {}
  ~RepairTurn() {
    if (begun_) writer_.end_repair();
  }
  RepairTurn(const RepairTurn&) = delete;
  RepairTurn& operator=(const RepairTurn&) = delete;
  [[nodiscard]] explicit operator bool() const noexcept { return begun_; }

 private:
  detail::MirrorWriter& writer_;
  const bool begun_;
};

/// Under the claim of `writer`; null: there is none.
Managed<MaintenanceReport> restore_copies(const Cluster& cluster,
                                          const remora::detail::EngineShare& engine,
                                          const std::shared_ptr<detail::MirrorWriter>& writer,
                                          const std::string& volume,
                                          const MaintenanceOptions& options) {
  if (writer == nullptr) return not_claimed(volume);
  const RepairTurn turn{*writer};
  if (!turn)
    return failure(Error{Code::kBusy, "repair volume"}.with_subject(volume),
                   "another thread repairs it under the same claim");
  detail::WriterClaimedVolume claimed{writer};
  detail::EngineMemberRegions regions{engine};
  return detail::with_claimed(cluster, claimed, regions, options,
                              [](detail::MirrorWork& work) { return work.restore_copies(); });
}

}  // namespace

Managed<MaintenanceReport> repair_volume(const Cluster& cluster, const Engine& engine,
                                         std::string_view name, const MaintenanceOptions& options) {
  const auto found = cluster.remains(name);
  if (!found) return failure(found.error());
  switch (found->volume.state) {
    case VolumeState::kImporting:
      return failure(Error{Code::kBusy, "volume that is being imported"}.with_subject(name));
    case VolumeState::kCreating:
    case VolumeState::kRemoving: {
      const auto removed = remove_volume(cluster, engine, name);
      if (!removed) return tl::unexpected<Failure>{removed.error()};
      MaintenanceReport report;
      report.cleared = true;
      return report;
    }
    case VolumeState::kReady: break;
  }
  if (found->volume.kind == Kind::kStriped) return repair_striped(cluster, engine, *found);
  return detail::with_claim(cluster, engine, name, options,
                            [](detail::MirrorWork& work) { return work.restore_copies(); });
}

Managed<MaintenanceReport> repair_claimed(const Cluster& cluster, const Engine& engine,
                                          const Volume& volume, const MaintenanceOptions& options) {
  return restore_copies(cluster, engine, detail::mirror_writer_of(volume), volume.record().name,
                        options);
}

Managed<MaintenanceReport> repair_claimed(const Volume& volume, const MaintenanceOptions& options) {
  constexpr Operation kRepair{"repair volume"};
  const auto core = detail::core_of(volume, kRepair);
  if (!core) return failure(core.error());
  const std::string& name = (*core)->record().name;
  if ((*core)->mirror() == nullptr)
    return failure(Error{Code::kUnsupported, kRepair}.with_subject(name),
                   "a striped volume has one copy of its bytes");
  const auto writer = (*core)->mirror()->writer();
  if (writer == nullptr || !(*core)->engine()) return not_claimed(name);
  const Cluster cluster = writer->claim().cluster();
  return restore_copies(cluster, *(*core)->engine(), writer, name, options);
}

}  // namespace remora::volume
