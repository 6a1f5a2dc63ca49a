#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <remora/volume/maintenance.h>
#include <remora/volume/placement.h>

#include "claimed_work.h"
#include "decided_commit.h"
#include "engine_member_regions.h"
#include "group_changes.h"
#include "header_search.h"
#include "make_member.h"
#include "newest_members.h"
#include "volume_builder.h"

namespace remora::volume {
namespace {

enum class Found : std::uint8_t { kThere, kGone, kUnknown };

/// Whether the member's bytes are there. kGone only if its server has other memory: a server tells
/// a client without a right to a region that there is no such region.
Found find_bytes(detail::MemberRegions& regions, const VolumeLayout& layout, const Member& member) {
  const auto region = regions.stat(member, layout.addresses_of(member));
  if (region) return Found::kThere;
  return region.error().code() == Code::kStaleRegion ? Found::kGone : Found::kUnknown;
}

/// One acceptance: what it makes, it removes again when it fails.
class LossAcceptance {
 public:
  LossAcceptance(const Cluster& cluster, const Engine& engine, VolumeLayout layout,
                 const AcceptLossOptions& options)
      : cluster_{cluster},
        engine_{engine},
        regions_{engine},
        layout_{std::move(layout)},
        options_{options} {}

  Managed<std::vector<std::uint64_t>> run() {
    if (auto found = find_lost(); !found) return tl::unexpected<Failure>{found.error()};
    if (lost_.empty())
      return failure(Error{Code::kNotFound, "lost group"}.with_subject(layout_.volume.name),
                     "'remora volume stat' shows the state of each group");
    const auto placement = place_lost();
    if (!placement) return tl::unexpected<Failure>{placement.error()};
    if (auto taken = take(); !taken) return tl::unexpected<Failure>{taken.error()};
    std::vector<std::uint64_t> done;
    for (std::size_t i = 0; i < lost_.size(); ++i) {
      if (auto replaced = replace(layout_.groups[lost_[i]], placement->groups[i]); !replaced) {
        Failure failed = replaced.error();
        failed.detail.append("; " + std::to_string(done.size()) + " of " +
                             std::to_string(lost_.size()) +
                             " groups are zeros; the same command goes on with the others");
        return tl::unexpected<Failure>{std::move(failed)};
      }
      done.push_back(lost_[i]);
    }
    return done;
  }

 private:
  Managed<void> find_lost() {
    for (const GroupRecord& group : layout_.groups) {
      if (!options_.groups.empty() && std::find(options_.groups.begin(), options_.groups.end(),
                                                group.index) == options_.groups.end())
        continue;
      bool there = false;
      std::string unknown;
      for (const Member& member : group.members) {
        if (member.state != MemberState::kInSync) continue;
        const Found found = find_bytes(regions_, layout_, member);
        there = there || found == Found::kThere;
        if (found == Found::kUnknown) unknown = member.server;
      }
      if (there) continue;
      if (layout_.volume.kind == Kind::kMirror && detail::is_restored(group, layout_.generation))
        if (auto known = expect_no_newer(group); !known) return known;
      if (unknown.empty() || options_.forget_unreachable)
        lost_.push_back(group.index);
      else
        return failure(Error{Code::kUnreachable, "accept a loss"}.with_subject(
                           layout_.volume.name + ", group " + std::to_string(group.index) +
                           ", server " + unknown),
                       "its server may still have the bytes: start it, or give them up for good "
                       "with --forget-unreachable; nothing was changed");
    }
    return {};
  }
  /// A restored record may name older members than those that have the bytes now.
  Managed<void> expect_no_newer(const GroupRecord& group) {
    if (!search_) search_.emplace(engine_, layout_).run();
    const std::string name = layout_.volume.name + ", group " + std::to_string(group.index);
    const std::string silent = search_->unreachable();
    if (!silent.empty() && !options_.forget_unreachable)
      return failure(
          Error{Code::kUnreachable, "accept a loss"}.with_subject(name + ", server " + silent),
          "its record was restored, and these servers may have newer bytes: start them, or give "
          "them up for good with --forget-unreachable; nothing was changed");
    const detail::FoundGroup* const found = search_->find(group.index);
    if (found == nullptr) return {};
    if (!found->unreadable.empty())
      return failure(Error{Code::kProtocol, "accept a loss"}.with_subject(name),
                     found->unreadable +
                         "; it may have newer bytes: if it has none that are missed, 'remora rm' "
                         "removes it; nothing was changed");
    const auto next = detail::with_newest_members(group, found->members);
    // No member in sync is left of the newest configuration; or no writer has used the regions.
    if (next ? *next == group : next.error().code() == Code::kStaleRegion) return {};
    return failure(Error{Code::kBusy, "accept a loss"}.with_subject(name),
                   "its record was restored, and other regions are newer: 'remora volume repair "
                   "--from-headers' makes the record from them; nothing was changed");
  }
  Managed<Placement> place_lost() {
    const VolumeRecord& volume = layout_.volume;
    servers_ = layout_.servers_for_members();
    for (ServerRecord& server : servers_)
      if (!regions_.refresh(server)) server.pool_free_bytes = 0;
    Placement placement = place(servers_, {.groups = lost_.size(),
                                           .group_bytes = region_bytes_of(volume),
                                           .width = volume.width,
                                           .copies = volume.copies,
                                           .allow_same_domain = volume.allow_same_domain});
    if (placement.fits()) return placement;
    return failure(
        Error{Code::kLimitExceeded, "room for a volume"}.with_subject(placement.missing()),
        placement.missing() + "; nothing was changed");
  }
  /// What other clients have begun with this volume cannot apply any more.
  Managed<void> take() {
    VolumeRecord ours = layout_.volume;
    ours.nonce = random_number();
    std::string value = to_json(ours);
    const std::string key = cluster_.keys().volume(ours.name);
    const auto applied = commit_decided(cluster_, {conditions(), {{key, value, kNoLease}}});
    if (!applied) return failure(applied.error());
    if (!*applied) return changed_meanwhile();
    layout_.volume_value = std::move(value);
    return {};
  }
  [[nodiscard]] std::vector<Compare> conditions() const {
    const std::string& name = layout_.volume.name;
    return {cluster_.generation_is(layout_.generation),
            {cluster_.keys().writer(name), std::nullopt},
            {cluster_.keys().volume(name), layout_.volume_value}};
  }
  [[nodiscard]] tl::unexpected<Failure> changed_meanwhile() const {
    return failure(
        Error{Code::kBusy, "volume that another client changes"}.with_subject(layout_.volume.name));
  }
  /// An access list like that of the volume's other regions; that of none, if there is none.
  RegionSpec properties() {
    for (const GroupRecord& group : layout_.groups)
      for (const Member& member : group.members)
        if (condition_of(layout_, member) == MemberCondition::kOk)
          if (const auto region = regions_.stat(member, layout_.addresses_of(member)))
            return properties_of(*region);
    return {};
  }
  Managed<void> replace(const GroupRecord& lost, const std::vector<std::size_t>& set) {
    if (!spec_) spec_ = properties();
    GroupRecord group = lost;
    group.members.clear();
    Managed<void> made = make_members(group, set);
    if (!made) {
      remove_members(group);
      return made;
    }
    ++group.epoch;
    group.adopted = 0;
    group.generation = layout_.generation;
    group.lost = group.restored = false;
    // A reader may still read a member that was only unreachable: the next claimant waits for it.
    group.promoting = layout_.volume.kind == Kind::kMirror;
    group.nonce = random_number();
    const std::string key = cluster_.keys().group(layout_.volume.name, group.index);
    std::vector<Compare> unchanged = conditions();
    unchanged.push_back({key, layout_.group_values[group.index]});
    // Once a server is drained, no volume gets a member there.
    for (const Member& member : group.members)
      unchanged.push_back({cluster_.keys().draining(member.server), std::nullopt});
    const auto applied = commit_decided(cluster_, {unchanged, {{key, to_json(group), kNoLease}}});
    if (applied && *applied) return {};
    if (applied) remove_members(group);
    // Without an answer the group may have them; else the next repair removes them.
    if (applied) return why_refused(group);
    return failure(applied.error());
  }
  [[nodiscard]] tl::unexpected<Failure> why_refused(const GroupRecord& group) const {
    const auto draining = cluster_.draining();
    if (!draining) return failure(draining.error());
    for (const Member& member : group.members)
      if (std::find(draining->begin(), draining->end(), member.server) != draining->end())
        return failure(
            Error{Code::kBusy, "server that is drained meanwhile"}.with_subject(member.server));
    return changed_meanwhile();
  }
  Managed<void> make_members(GroupRecord& group, const std::vector<std::size_t>& set) {
    for (const std::size_t server : set) {
      auto member =
          regions_.make(servers_[server], region_spec_of(layout_.volume, group.index, *spec_));
      if (!member) return tl::unexpected<Failure>{member.error()};
      group.members.push_back(std::move(*member));
    }
    return {};
  }
  void remove_members(const GroupRecord& group) {
    for (const Member& member : group.members)
      static_cast<void>(regions_.remove(member.server, member.addresses, member.region));
  }

  const Cluster& cluster_;
  const Engine& engine_;
  detail::EngineMemberRegions regions_;
  VolumeLayout layout_;
  const AcceptLossOptions& options_;
  std::vector<std::uint64_t> lost_;
  std::vector<ServerRecord> servers_;
  std::optional<RegionSpec> spec_;
  std::optional<detail::HeaderSearch> search_;  ///< run
};

}  // namespace

Managed<std::vector<std::uint64_t>> accept_loss(const Cluster& cluster, const Engine& engine,
                                                std::string_view name,
                                                const AcceptLossOptions& options) {
  auto layout = cluster.layout(name);
  if (!layout) return failure(layout.error());
  if (!layout->live_writer.empty())
    return failure(Error{Code::kBusy, "volume with a claimed writer"}.with_subject(name),
                   layout->live_writer + " has the claim");
  if (layout->volume.kind == Kind::kStriped && options.forget_unreachable)
    return failure(Error{Code::kUnsupported, "accept a loss"}.with_subject(name),
                   "clients may still write to a group of a striped volume whose server is only "
                   "unreachable for this client: --forget-unreachable is for mirrors");
  const bool mirror = layout->volume.kind == Kind::kMirror;
  auto accepted = LossAcceptance{cluster, engine, std::move(*layout), options}.run();
  if (!accepted || !mirror) return accepted;
  // The new groups are promoting until a writer has adopted them, and readers would wait for that.
  const auto adopted = detail::with_claim(cluster, engine, name, {},
                                          [](detail::MirrorWork&) -> Managed<void> { return {}; });
  if (!adopted) return tl::unexpected<Failure>{adopted.error()};
  return accepted;
}

}  // namespace remora::volume
