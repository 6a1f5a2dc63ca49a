#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <remora/config/units.h>
#include <remora/volume/placement.h>

namespace remora::volume {
namespace {

/// Places groups one after the other.
class Placer {
 public:
  Placer(std::span<const ServerRecord> servers, const PlacementRequest& request)
      : servers_{servers}, request_{request}, free_(servers.size(), 0), in_row_(servers.size(), 0) {
    for (std::size_t i = 0; i < servers.size(); ++i)
      if (allowed(servers[i])) free_[i] = servers[i].pool_free_bytes / request.group_bytes;
  }

  std::vector<std::vector<std::size_t>> place_all() {
    std::vector<std::vector<std::size_t>> groups;
    for (std::uint64_t index = 0; index < request_.groups; ++index) {
      if (index % request_.width == 0) std::fill(in_row_.begin(), in_row_.end(), 0U);
      // The set of the same place in the row above, so that few distinct sets of servers hold
      // copies together.
      if (request_.copies > 1 && index >= request_.width &&
          has_room(groups[index - request_.width])) {
        groups.push_back(groups[index - request_.width]);
      } else if (auto set = choose_set(); !set.empty()) {
        groups.push_back(std::move(set));
      } else {
        return {};
      }
      for (const std::size_t server : groups.back()) --free_[server];
      ++in_row_[groups.back().front()];
    }
    return groups;
  }

 private:
  [[nodiscard]] bool allowed(const ServerRecord& server) const {
    return request_.servers.empty() || std::find(request_.servers.begin(), request_.servers.end(),
                                                 server.name) != request_.servers.end();
  }
  [[nodiscard]] bool has_room(const std::vector<std::size_t>& set) const {
    return std::all_of(set.begin(), set.end(),
                       [this](std::size_t server) { return free_[server] > 0; });
  }
  /// Empty: there is no room.
  [[nodiscard]] std::vector<std::size_t> choose_set() const {
    std::vector<std::size_t> set;
    while (set.size() < request_.copies) {
      const auto next = choose(set);
      if (!next) return {};
      set.push_back(*next);
    }
    return set;
  }
  /// The server with the fewest groups of this row, and of those the one with the most room.
  [[nodiscard]] std::optional<std::size_t> choose(const std::vector<std::size_t>& set) const {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < servers_.size(); ++i) {
      if (free_[i] == 0 || clashes(i, set)) continue;
      if (!best || in_row_[i] < in_row_[*best] ||
          (in_row_[i] == in_row_[*best] && free_[i] > free_[*best]))
        best = i;
    }
    return best;
  }
  [[nodiscard]] bool clashes(std::size_t server, const std::vector<std::size_t>& set) const {
    return std::any_of(set.begin(), set.end(), [&](std::size_t other) {
      return other == server ||
             (!request_.allow_same_domain && servers_[other].domain() == servers_[server].domain());
    });
  }

  const std::span<const ServerRecord> servers_;
  const PlacementRequest& request_;
  std::vector<std::uint64_t> free_;    ///< in groups
  std::vector<std::uint32_t> in_row_;  ///< groups of this row, by the first copy
};

std::vector<DomainRoom> rooms_of(std::span<const ServerRecord> servers,
                                 const PlacementRequest& request, std::uint32_t needed) {
  std::map<std::string, std::uint64_t> free;  // by domain, in groups
  for (const ServerRecord& server : servers) {
    const bool wanted = request.servers.empty() ||
                        std::find(request.servers.begin(), request.servers.end(), server.name) !=
                            request.servers.end();
    if (wanted) free[server.domain()] += server.pool_free_bytes / request.group_bytes;
  }
  const std::uint64_t domains = std::max<std::uint64_t>({free.size(), needed, 1});
  const std::uint64_t share = (request.groups * request.copies + domains - 1) / domains;
  std::vector<DomainRoom> rooms;
  rooms.reserve(free.size());
  for (const auto& [domain, groups] : free)
    rooms.push_back({domain, groups * request.group_bytes,
                     groups < share ? (share - groups) * request.group_bytes : 0});
  return rooms;
}

}  // namespace

std::string Placement::missing() const {
  std::string text;
  for (const DomainRoom& room : rooms)
    text.append(text.empty() ? "" : "; ")
        .append(room.domain)
        .append(": ")
        .append(config::format_size(room.free_bytes))
        .append(" free in whole groups, ")
        .append(config::format_size(room.missing_bytes))
        .append(" missing");
  if (rooms.empty()) text = "no server is registered";
  if (rooms.size() < domains_needed)
    text.append("; it needs ")
        .append(std::to_string(domains_needed))
        .append(" failure domains, and there are ")
        .append(std::to_string(rooms.size()));
  return text;
}

Placement place(std::span<const ServerRecord> servers, const PlacementRequest& request) {
  Placement placement;
  placement.domains_needed = request.allow_same_domain ? 1 : request.copies;
  placement.groups = Placer{servers, request}.place_all();
  if (!placement.fits()) placement.rooms = rooms_of(servers, request, placement.domains_needed);
  return placement;
}

}  // namespace remora::volume
