#include "header_search.h"

#include "orphan_regions.h"

namespace remora::volume::detail {

void HeaderSearch::run() {
  std::map<std::string, std::vector<std::string>> servers;
  for (const ServerRecord& server : layout_.servers) servers[server.name] = server.addresses;
  for (const GroupRecord& group : layout_.groups)
    for (const Member& member : group.members) servers.try_emplace(member.server, member.addresses);
  for (const auto& [name, addresses] : servers) {
    const auto session = servers_.connect(name, addresses);
    const auto regions =
        session ? session->regions() : Result<std::vector<RegionInfo>>{session.error()};
    if (regions)
      search(*session, *regions, name, addresses);
    else
      unreachable_.insert(name);
  }
}

void HeaderSearch::search(const Session& session, const std::vector<RegionInfo>& regions,
                          const std::string& server, const std::vector<std::string>& addresses) {
  for (const RegionInfo& info : regions) {
    const std::uint64_t group = group_of_region(layout_.volume.id, info.name);
    if (group >= layout_.groups.size()) continue;
    const auto header = regions_.read_header(server, addresses, info.name);
    if (!header) {
      found_[group].unreadable =
          "region " + info.name + " on server " + server + ": " + header.error().message();
      continue;
    }
    if (header->writer_epoch != 0 &&
        (header->volume_id != layout_.volume.id || header->group != group))
      continue;  // the header of another region
    found_[group].members.push_back({.member = {.server = server,
                                                .addresses = addresses,
                                                .memory_id = session.server().memory_id,
                                                .region = info.name,
                                                .incarnation = info.incarnation},
                                     .header = *header});
  }
}

const FoundGroup* HeaderSearch::find(std::uint64_t group) const noexcept {
  const auto found = found_.find(group);
  return found == found_.end() ? nullptr : &found->second;
}

std::string HeaderSearch::unreachable() const {
  std::string text;
  for (const std::string& name : unreachable_) text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

}  // namespace remora::volume::detail
