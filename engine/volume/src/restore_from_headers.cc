#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <remora/volume/maintenance.h>

#include "decided_commit.h"
#include "group_changes.h"
#include "member_header.h"
#include "member_servers.h"
#include "newest_members.h"
#include "orphan_regions.h"
#include "volume_builder.h"

namespace remora::volume {
namespace {

using detail::FoundMember;
using FoundGroups = std::map<std::uint64_t, std::vector<FoundMember>>;

/// Reads the headers of all regions of a volume.
class HeaderSearch {
 public:
  HeaderSearch(const Engine& engine, const VolumeLayout& layout)
      : engine_{engine}, servers_{engine}, layout_{layout} {}

  /// By group. Servers that do not answer are in unreachable().
  Managed<FoundGroups> run() {
    std::map<std::string, std::vector<std::string>> servers;
    for (const ServerRecord& server : layout_.servers) servers[server.name] = server.addresses;
    for (const GroupRecord& group : layout_.groups)
      for (const Member& member : group.members)
        servers.try_emplace(member.server, member.addresses);
    for (const auto& [name, addresses] : servers) {
      const auto session = servers_.connect(name, addresses);
      if (!session) {
        unreachable_.insert(name);
        continue;
      }
      if (auto done = search(*session, name, addresses); !done)
        return tl::unexpected<Failure>{done.error()};
    }
    return std::move(found_);
  }
  [[nodiscard]] const std::set<std::string>& unreachable() const noexcept { return unreachable_; }

 private:
  Managed<void> search(const Session& session, const std::string& server,
                       const std::vector<std::string>& addresses) {
    const auto regions = session.regions();
    if (!regions) return failure(regions.error(), "server " + server);
    for (const RegionInfo& info : *regions) {
      const std::uint64_t group = detail::group_of_region(layout_.volume.id, info.name);
      if (group >= layout_.groups.size()) continue;
      auto header = read_header(addresses, info.name);
      if (!header) return failure(header.error(), "region " + info.name + " on server " + server);
      if (header->writer_epoch != 0 &&
          (header->volume_id != layout_.volume.id || header->group != group))
        continue;  // the header of another region
      found_[group].push_back({.member = {.server = server,
                                          .addresses = addresses,
                                          .memory_id = session.server().memory_id,
                                          .region = info.name,
                                          .incarnation = info.incarnation},
                               .header = *header});
    }
    return {};
  }
  Result<detail::MemberHeader> read_header(const std::vector<std::string>& addresses,
                                           const std::string& region) const {
    Result<Region> opened{Error{Code::kNotFound, "address of a server"}};
    for (const std::string& address : addresses) {
      std::string uri{"remora://"};
      uri.append(address).append("/").append(region);
      opened = engine_.open_region(uri, Rights::kRead);
      if (opened) break;
    }
    if (!opened) return opened.error();
    std::array<std::byte, detail::MemberHeader::kBytes> bytes{};
    if (const Status read = opened->read(ByteOffset{0}, bytes); !read) return read.error();
    return detail::MemberHeader::decode(bytes);
  }

  const Engine& engine_;
  MemberServers servers_;
  const VolumeLayout& layout_;
  FoundGroups found_;
  std::set<std::string> unreachable_;
};

std::string joined_names(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

/// The records that are written in place of those of `layout`, by group.
Managed<std::vector<GroupRecord>> restored_groups(const VolumeLayout& layout, FoundGroups& found) {
  std::vector<GroupRecord> groups;
  for (const GroupRecord& group : layout.groups) {
    if (!detail::is_restored(group, layout.generation)) continue;
    auto next = detail::with_newest_members(group, found[group.index]);
    if (!next)
      return failure(next.error(),
                     "nothing was changed; 'remora volume accept-loss' makes a group "
                     "zeros whose bytes are gone");
    if (*next != group) groups.push_back(std::move(*next));
  }
  return groups;
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
  HeaderSearch search{engine, *layout};
  auto found = search.run();
  if (!found) return tl::unexpected<Failure>{found.error()};
  if (!search.unreachable().empty() && !forget_unreachable)
    return failure(Error{Code::kUnreachable, "headers of a volume"}.with_subject(
                       joined_names(search.unreachable())),
                   "one of these servers may have newer bytes: start them, or pass them over with "
                   "--forget-unreachable; nothing was changed");
  const auto groups = restored_groups(*layout, *found);
  if (!groups) return tl::unexpected<Failure>{groups.error()};
  if (groups->empty())
    return failure(Error{Code::kNotFound, "group to restore"}.with_subject(name),
                   "the records of all groups are adopted, or as new as the headers");

  // First the volume: its writer epoch is at least that of each header.
  VolumeRecord ours = layout->volume;
  ours.nonce = random_number();
  for (const GroupRecord& group : *groups)
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
  for (const GroupRecord& group : *groups) {
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
  return done;
}

}  // namespace remora::volume
