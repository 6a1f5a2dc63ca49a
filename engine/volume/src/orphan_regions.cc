#include "orphan_regions.h"

#include <charconv>
#include <map>
#include <string>

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

std::uint64_t remove_orphans(const VolumeLayout& layout, MemberRegions& regions,
                             const std::set<std::uint64_t>& kept, std::vector<std::string>& left) {
  std::map<std::string, std::vector<std::string>> servers;
  for (const ServerRecord& server : layout.servers) servers[server.name] = server.addresses;
  std::set<std::string> used;
  for (const auto* groups : {&layout.groups, &layout.extra_groups})
    for (const GroupRecord& group : *groups)
      for (const Member& member : group.members) {
        used.insert(member.region);
        servers.try_emplace(member.server, member.addresses);
      }
  std::uint64_t count = 0;
  for (const auto& [server, addresses] : servers) {
    const auto names = regions.list(server, addresses, region_prefix(layout.volume.id));
    if (!names) continue;  // they go with the server's memory, or the next repair finds them
    for (const std::string& name : *names) {
      const std::uint64_t group = group_of_region(layout.volume.id, name);
      if (used.contains(name) || group == UINT64_MAX || kept.contains(group)) continue;
      std::string what{"region "};
      what.append(name).append(" on server ").append(server);
      // Of a growth that was interrupted; or of one that a store, restored from before it, forgot.
      if (group >= layout.volume.group_count()) {
        left.push_back(
            what.append(" is of a group behind the volume's end: if the volume was never "
                        "larger, 'remora rm' removes it"));
        continue;
      }
      if (regions.remove(server, addresses, name))
        ++count;
      else
        left.push_back(what.append(" is not used any more"));
    }
  }
  return count;
}

}  // namespace remora::volume::detail
