#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <remora/volume/maintenance.h>

#include "decided_commit.h"
#include "group_changes.h"
#include "header_search.h"
#include "newest_members.h"
#include "volume_builder.h"

namespace remora::volume {
namespace {

/// What becomes of the records.
struct Restoration {
  std::vector<GroupRecord> groups{};  ///< in place of those of the layout
  /// A group whose record stays as it is; empty: there is none.
  std::string refused{};
  Error error{Code::kInternal};
};

/// One group that cannot be restored does not keep the others.
Restoration restored_groups(const VolumeLayout& layout, const detail::HeaderSearch& search) {
  Restoration made;
  for (const GroupRecord& group : layout.groups) {
    if (!detail::is_restored(group, layout.generation)) continue;
    const detail::FoundGroup* const found = search.find(group.index);
    if (found == nullptr) continue;
    const std::string name = "group " + std::to_string(group.index) + ": ";
    if (!found->unreadable.empty()) {
      made.refused = name + found->unreadable +
                     "; if nothing of that region is missed, 'remora rm' removes it";
      made.error = Error{Code::kProtocol, "headers of a volume"}.with_subject(layout.volume.name);
      continue;
    }
    auto next = detail::with_newest_members(group, found->members);
    if (!next) {
      made.refused = name + "'remora volume accept-loss' makes a group zeros whose bytes are gone";
      made.error = next.error();
    } else if (*next != group) {
      made.groups.push_back(std::move(*next));
    }
  }
  return made;
}

}  // namespace

Managed<std::vector<std::uint64_t>> restore_from_headers(const Cluster& cluster,
                                                         const Engine& engine,
                                                         std::string_view name,
                                                         bool forget_unreachable) {
  const auto layout = cluster.layout(name);
  if (!layout) return failure(layout.error());
  if (layout->volume.kind != Kind::kMirror)
    return failure(Error{Code::kUnsupported, "headers of a volume"}.with_subject(name),
                   "only members of mirrors have headers");
  if (!layout->live_writer.empty())
    return failure(Error{Code::kBusy, "volume with a claimed writer"}.with_subject(name),
                   layout->live_writer + " has the claim");
  detail::HeaderSearch search{engine, *layout};
  search.run();
  if (!search.unreachable().empty() && !forget_unreachable)
    return failure(
        Error{Code::kUnreachable, "headers of a volume"}.with_subject(search.unreachable()),
        "one of these servers may have newer bytes: start them, or pass them over with "
        "--forget-unreachable; nothing was changed");
  const Restoration made = restored_groups(*layout, search);
  if (made.groups.empty() && !made.refused.empty())
    return failure(made.error, made.refused + "; nothing was changed");
  if (made.groups.empty())
    return failure(Error{Code::kNotFound, "group to restore"}.with_subject(name),
                   "the records of all groups are adopted, or as new as the headers");

  // First the volume: its writer epoch is at least that of each header.
  VolumeRecord ours = layout->volume;
  ours.nonce = random_number();
  for (const GroupRecord& group : made.groups)
    ours.writer_epoch = std::max(ours.writer_epoch, group.adopted);
  const std::string key = cluster.keys().volume(name);
  const std::string value = to_json(ours);
  const Compare generation = cluster.generation_is(layout->generation);
  const Compare unclaimed{cluster.keys().writer(name), std::nullopt};
  const auto taken = commit_decided(
      cluster, {{generation, unclaimed, {key, layout->volume_value}}, {{key, value, kNoLease}}});
  if (!taken) return failure(taken.error());
  if (!*taken)
    return failure(Error{Code::kBusy, "volume that another client changes"}.with_subject(name));
  std::vector<std::uint64_t> done;
  for (const GroupRecord& group : made.groups) {
    const std::string group_key = cluster.keys().group(name, group.index);
    const auto applied = commit_decided(
        cluster,
        {{generation, unclaimed, {key, value}, {group_key, layout->group_values[group.index]}},
         {{group_key, to_json(group), kNoLease}}});
    if (!applied) return failure(applied.error(), "the same command goes on");
    if (!*applied)
      return failure(Error{Code::kBusy, "volume that another client changes"}.with_subject(name));
    done.push_back(group.index);
  }
  if (!made.refused.empty())
    return failure(made.error, made.refused + "; other groups that were restored: " +
                                   std::to_string(done.size()));
  return done;
}

}  // namespace remora::volume
