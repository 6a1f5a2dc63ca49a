#include "orphan_regions.h"

#include <charconv>
#include <map>
#include <string>
#include <utility>

namespace remora::volume::detail {

std::uint64_t group_of_region(std::uint64_t volume_id, std::string_view region) {
  const std::string prefix = region_prefix(volume_id);
  if (!region.starts_with(prefix)) return UINT64_MAX;
  const std::string_view number = region.substr(prefix.size());
  std::uint64_t group = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), group);
  if (error != std::errc{} || end == number.data() + number.size() || *end != '-')
    return UINT64_MAX;
  return group;
}

namespace {

/// A region that no group uses.
struct Orphan {
  std::string server{};
  std::vector<std::string> addresses{};
  std::string region{};
  std::uint64_t group = 0;
};

std::vector<Orphan> find_orphans(const VolumeLayout& layout, MemberRegions& regions,
                                 const std::set<std::uint64_t>& kept,
                                 const std::function<bool()>& stop) {
  std::map<std::string, std::vector<std::string>> servers;
  for (const ServerRecord& server : layout.servers) servers[server.name] = server.addresses;
  std::set<std::string> used;
  for (const auto* groups : {&layout.groups, &layout.extra_groups})
    for (const GroupRecord& group : *groups)
      for (const Member& member : group.members) {
        used.insert(member.region);
        servers.try_emplace(member.server, member.addresses);
      }
  std::vector<Orphan> orphans;
  for (const auto& [server, addresses] : servers) {
    if (stop && stop()) return {};
    const auto names = regions.list(server, addresses, region_prefix(layout.volume.id));
    if (!names) continue;  // they go with the server's memory, or the next repair finds them
    for (const std::string& name : *names) {
      const std::uint64_t group = group_of_region(layout.volume.id, name);
      if (used.contains(name) || group == UINT64_MAX || kept.contains(group)) continue;
      orphans.push_back({server, addresses, name, group});
    }
  }
  return orphans;
}

/// Why it may hold bytes that the records have forgotten; empty: it holds none. Each claim writes
/// the headers of all members, before any data.
std::string why_kept(const VolumeLayout& layout, MemberRegions& regions, const Orphan& orphan) {
  const bool behind_end = orphan.group >= layout.groups.size();
  if (layout.volume.kind != Kind::kMirror)
    return behind_end ? "is of a group behind the volume's end" : "";
  const auto header = regions.read_header(orphan.server, orphan.addresses, orphan.region);
  if (!header) return "has a header that cannot be read (" + header.error().message() + ")";
  if (*header == MemberHeader{}) return {};
  if (behind_end) return "was written as a part of a group behind the volume's end";
  if (header->is_ahead_of(layout.groups[orphan.group]))
    return "has a header that is newer than the record of its group, or of another generation";
  return {};
}

}  // namespace

std::uint64_t remove_orphans(const VolumeLayout& layout, MemberRegions& regions,
                             const std::set<std::uint64_t>& kept,
                             const std::function<Status()>& still_ours,
                             std::vector<std::string>& left, const std::function<bool()>& stop) {
  const std::vector<Orphan> orphans = find_orphans(layout, regions, kept, stop);
  if (orphans.empty()) return 0;
  if (const Status ours = still_ours(); !ours) {
    left.push_back(std::to_string(orphans.size()) +
                   " regions that no group used stay: " + ours.error().message());
    return 0;
  }
  std::uint64_t count = 0;
  for (const Orphan& orphan : orphans) {
    if (stop && stop()) break;
    std::string what{"region "};
    what.append(orphan.region).append(" on server ").append(orphan.server);
    const std::string why = why_kept(layout, regions, orphan);
    if (!why.empty()) {
      const std::string address = orphan.addresses.empty() ? "ADDRESS" : orphan.addresses.front();
      left.push_back(what.append(" ")
                         .append(why)
                         .append(", and stays: if nothing of it is missed, 'remora rm remora://")
                         .append(address)
                         .append("/")
                         .append(orphan.region)
                         .append("' removes it"));
      continue;
    }
    if (regions.remove(orphan.server, orphan.addresses, orphan.region))
      ++count;
    else
      left.push_back(what.append(" is not used any more"));
  }
  return count;
}

}  // namespace remora::volume::detail
