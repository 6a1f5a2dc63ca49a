#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <remora/config/units.h>
#include <remora/volume/placement.h>

namespace remora::volume {
namespace {

bool is_among(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Free groups by *unit*: servers of which a group uses one at most. A unit is a failure domain, or
/// a single server where copies may be in one domain.
class Units {
 public:
  Units(std::span<const ServerRecord> servers, const PlacementRequest& request) {
    for (const ServerRecord& server : servers) {
      const std::string& name = request.allow_same_domain ? server.name : server.domain();
      const bool allowed = request.servers.empty() || is_among(request.servers, server.name);
      const auto [unit, added] = index_.try_emplace(name, free_.size());
      if (added) {
        free_.push_back(0);
        domains_.push_back(server.domain());
      }
      used_.resize(free_.size(), false);
      used_[unit->second] = used_[unit->second] || allowed;
      free_[unit->second] += allowed ? server.pool_free_bytes / request.group_bytes : 0;
      of_server_.push_back(unit->second);
    }
  }

  [[nodiscard]] std::size_t of(std::size_t server) const { return of_server_[server]; }
  [[nodiscard]] std::uint64_t free(std::size_t unit) const { return free_[unit]; }
  void take(std::size_t server) { --free_[of(server)]; }
  void give_back(std::size_t server) { ++free_[of(server)]; }

  /// Whether so many groups fit, each with its copies in different units: a unit holds one copy of
  /// each group at most, and more is not needed.
  [[nodiscard]] bool have_room(std::uint64_t groups, std::uint64_t copies) const {
    std::uint64_t room = 0;
    for (const std::uint64_t free : free_) room += std::min(free, groups);
    return room >= groups * copies;
  }
  [[nodiscard]] std::vector<bool> all() const { return std::vector<bool>(free_.size(), true); }
  /// The units with the most room. While have_room() holds, to take a group from them keeps it so.
  [[nodiscard]] std::vector<bool> roomiest(std::size_t count) const {
    std::vector<std::size_t> order(free_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [this](std::size_t left, std::size_t right) {
      return free_[left] > free_[right];
    });
    std::vector<bool> units(free_.size(), false);
    for (std::size_t i = 0; i < std::min(count, order.size()); ++i) units[order[i]] = true;
    return units;
  }
  /// How many of them have a server that may be used.
  [[nodiscard]] std::uint32_t usable() const {
    return static_cast<std::uint32_t>(std::count(used_.begin(), used_.end(), true));
  }
  /// The room of each failure domain, and how much its units lack of the least level at which all
  /// groups fit.
  [[nodiscard]] std::vector<DomainRoom> rooms(const PlacementRequest& request) const {
    const std::uint64_t wanted = request.groups * request.copies;
    const auto room_at = [&](std::uint64_t level) {
      std::uint64_t room = 0;
      for (std::size_t unit = 0; unit < free_.size(); ++unit)
        if (used_[unit]) room += std::min(std::max(free_[unit], level), request.groups);
      return room;
    };
    std::uint64_t low = 0;
    std::uint64_t high = request.groups;  // with it a unit holds a copy of every group
    while (low < high) {
      const std::uint64_t middle = low + (high - low) / 2;
      if (room_at(middle) >= wanted)
        high = middle;
      else
        low = middle + 1;
    }
    std::map<std::string, DomainRoom> domains;
    for (const auto& [name, unit] : index_) {
      if (!used_[unit]) continue;
      DomainRoom& room = domains[domains_[unit]];
      room.domain = domains_[unit];
      room.free_bytes += free_[unit] * request.group_bytes;
      if (free_[unit] >= high) continue;
      room.missing_bytes += (high - free_[unit]) * request.group_bytes;
      if (request.allow_same_domain) room.servers.push_back(name);
    }
    std::vector<DomainRoom> rooms;
    rooms.reserve(domains.size());
    for (auto& [name, room] : domains) rooms.push_back(std::move(room));
    return rooms;
  }

 private:
  std::map<std::string, std::size_t> index_;
  std::vector<std::uint64_t> free_;
  std::vector<std::string> domains_;  ///< the failure domain of each
  std::vector<bool> used_;            ///< it has a server that may be used
  std::vector<std::size_t> of_server_;
};

/// Places groups one after the other.
class Placer {
 public:
  Placer(std::span<const ServerRecord> servers, const PlacementRequest& request)
      : servers_{servers},
        request_{request},
        units_{servers, request},
        free_(servers.size(), 0),
        primaries_(servers.size(), 0),
        copies_(servers.size(), 0) {
    for (std::size_t i = 0; i < servers.size(); ++i)
      if (request.servers.empty() || is_among(request.servers, servers[i].name))
        free_[i] = servers[i].pool_free_bytes / request.group_bytes;
  }

  std::vector<std::vector<std::size_t>> place_all() {
    if (!units_.have_room(request_.groups, request_.copies)) return {};
    std::vector<std::vector<std::size_t>> groups;
    for (std::uint64_t index = 0; index < request_.groups; ++index) {
      if (index % request_.width == 0) {
        std::fill(primaries_.begin(), primaries_.end(), 0U);
        std::fill(copies_.begin(), copies_.end(), 0U);
      }
      const std::uint64_t left = request_.groups - index - 1;
      std::vector<std::size_t> set = set_above(groups, index);
      if (!has_room(set)) set = choose_set(units_.all());
      // A good set for this group may leave too little for the others.
      if (!leaves_room(set, left)) set = choose_set(units_.roomiest(request_.copies));
      for (const std::size_t server : set) take(server);
      ++primaries_[set.front()];
      std::vector<std::size_t> sorted = set;
      std::sort(sorted.begin(), sorted.end());
      used_sets_.insert(std::move(sorted));
      groups.push_back(std::move(set));
    }
    return groups;
  }

  [[nodiscard]] std::vector<DomainRoom> rooms() const { return units_.rooms(request_); }
  [[nodiscard]] std::uint32_t usable_units() const { return units_.usable(); }

 private:
  void take(std::size_t server) {
    --free_[server];
    ++copies_[server];
    units_.take(server);
  }
  /// The set of the same place in the row above, so that few distinct sets of servers hold copies
  /// together; empty: there is none.
  [[nodiscard]] std::vector<std::size_t> set_above(
      const std::vector<std::vector<std::size_t>>& groups, std::uint64_t index) const {
    if (request_.copies == 1) return {};
    if (index >= request_.width) return groups[index - request_.width];
    return index < request_.above.size() ? request_.above[index] : std::vector<std::size_t>{};
  }
  [[nodiscard]] bool has_room(const std::vector<std::size_t>& set) const {
    return set.size() == request_.copies &&
           std::all_of(set.begin(), set.end(),
                       [this](std::size_t server) { return free_[server] > 0; });
  }
  [[nodiscard]] bool leaves_room(const std::vector<std::size_t>& set, std::uint64_t left) {
    if (set.size() != request_.copies) return false;
    for (const std::size_t server : set) units_.take(server);
    const bool fits = units_.have_room(left, request_.copies);
    for (const std::size_t server : set) units_.give_back(server);
    return fits;
  }
  /// Servers of different units among `units`; fewer than the copies: there is no room.
  [[nodiscard]] std::vector<std::size_t> choose_set(const std::vector<bool>& units) const {
    std::vector<std::size_t> set;
    while (set.size() < request_.copies) {
      std::optional<std::size_t> best;
      for (std::size_t i = 0; i < servers_.size(); ++i) {
        if (free_[i] == 0 || !units[units_.of(i)] || clashes(i, set)) continue;
        if (!best || rank(i, set) < rank(*best, set)) best = i;
      }
      if (!best) break;
      set.push_back(*best);
    }
    return set;
  }
  /// The less the better: the load in this row, then a set that is used already, then the room.
  using Rank = std::tuple<bool, std::uint32_t, std::uint32_t, bool, std::uint64_t>;
  [[nodiscard]] Rank rank(std::size_t server, const std::vector<std::size_t>& set) const {
    const bool first = set.empty();
    return {shares_domain(server, set), first ? primaries_[server] : 0U, copies_[server],
            !first && !used_together(server, set), UINT64_MAX - free_[server]};
  }
  [[nodiscard]] bool clashes(std::size_t server, const std::vector<std::size_t>& set) const {
    return std::any_of(set.begin(), set.end(),
                       [&](std::size_t other) { return units_.of(other) == units_.of(server); });
  }
  [[nodiscard]] bool shares_domain(std::size_t server, const std::vector<std::size_t>& set) const {
    return std::any_of(set.begin(), set.end(), [&](std::size_t other) {
      return servers_[other].domain() == servers_[server].domain();
    });
  }
  [[nodiscard]] bool used_together(std::size_t server, std::vector<std::size_t> set) const {
    set.push_back(server);
    std::sort(set.begin(), set.end());
    return std::any_of(used_sets_.begin(), used_sets_.end(), [&](const auto& used) {
      return std::includes(used.begin(), used.end(), set.begin(), set.end());
    });
  }

  const std::span<const ServerRecord> servers_;
  const PlacementRequest& request_;
  Units units_;
  std::vector<std::uint64_t> free_;       ///< in groups
  std::vector<std::uint32_t> primaries_;  ///< of this row
  std::vector<std::uint32_t> copies_;     ///< of this row, primaries too
  std::set<std::vector<std::size_t>> used_sets_;
};

}  // namespace

std::string Placement::missing() const {
  std::string text;
  for (const DomainRoom& room : rooms) {
    text.append(text.empty() ? "" : "; ")
        .append(room.domain)
        .append(": ")
        .append(config::format_size(room.free_bytes))
        .append(" free in whole groups, ")
        .append(config::format_size(room.missing_bytes))
        .append(" missing");
    // A server without a failure domain is one by itself, of its name.
    if (room.servers.empty() || room.servers == std::vector{room.domain}) continue;
    text.append(" on");
    for (const std::string& server : room.servers)
      text.append(&server == &room.servers.front() ? " " : ", ").append(server);
  }
  if (rooms.empty()) text = "no server is registered that may get members";
  if (domains_usable < domains_needed)
    text.append("; it needs ")
        .append(std::to_string(domains_needed))
        .append(of_servers ? " servers, and there are " : " failure domains, and there are ")
        .append(std::to_string(domains_usable));
  return text;
}

Placement place(std::span<const ServerRecord> servers, const PlacementRequest& request) {
  Placement placement;
  Placer placer{servers, request};
  placement.groups = placer.place_all();
  placement.domains_needed = request.copies;
  placement.of_servers = request.allow_same_domain;
  if (placement.fits()) return placement;
  placement.rooms = placer.rooms();
  placement.domains_usable = placer.usable_units();
  return placement;
}

std::optional<std::size_t> place_replacement(std::span<const ServerRecord> servers,
                                             const ReplacementRequest& request) {
  std::vector<std::string> domains = request.kept;  // of those that are not registered
  for (const ServerRecord& server : servers)
    if (is_among(request.kept, server.name)) domains.push_back(server.domain());
  const auto used_together = [&](const std::string& name) {
    return std::any_of(request.sets.begin(), request.sets.end(), [&](const auto& set) {
      return is_among(set, name) &&
             std::all_of(request.kept.begin(), request.kept.end(),
                         [&](const std::string& kept) { return is_among(set, kept); });
    });
  };
  const auto rank = [&](std::size_t i) {
    return std::tuple{is_among(domains, servers[i].domain()), !used_together(servers[i].name),
                      UINT64_MAX - servers[i].pool_free_bytes};
  };
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < servers.size(); ++i) {
    const ServerRecord& server = servers[i];
    if (server.pool_free_bytes < request.region_bytes || is_among(request.kept, server.name) ||
        is_among(request.excluded, server.name))
      continue;
    if (!request.allow_same_domain && is_among(domains, server.domain())) continue;
    if (!best || rank(i) < rank(*best)) best = i;
  }
  return best;
}

}  // namespace remora::volume
