#include "move_plan.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

namespace remora::volume::detail {

namespace {

/// Moves members in its own copy of the records, and notes each move.
class MovePlanner {
 public:
  explicit MovePlanner(const MovePlanRequest& request)
      : request_{request},
        groups_{request.groups.begin(), request.groups.end()},
        servers_{request.servers.begin(), request.servers.end()} {}

  std::vector<PlannedMove> plan() {
    if (!request_.allow_same_domain) separate_domains();
    while (move_from_fullest()) {
    }
    return std::move(moves_);
  }

 private:
  [[nodiscard]] std::optional<std::size_t> index_of(const std::string& server) const {
    for (std::size_t i = 0; i < servers_.size(); ++i)
      if (servers_[i].name == server) return i;
    return std::nullopt;
  }
  /// The used part of a pool, `more` bytes added.
  [[nodiscard]] double load(std::size_t server, std::int64_t more = 0) const {
    const ServerRecord& record = servers_[server];
    if (record.pool_bytes == 0) return 1;
    const auto used = static_cast<double>(record.pool_bytes - record.pool_free_bytes);
    return (used + static_cast<double>(more)) / static_cast<double>(record.pool_bytes);
  }
  [[nodiscard]] bool shares_domain(const GroupRecord& group, std::size_t member,
                                   const ServerRecord& server) const {
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      if (i == member) continue;
      const auto other = index_of(group.members[i].server);
      if (other && servers_[*other].domain() == server.domain()) return true;
    }
    return false;
  }
  [[nodiscard]] bool may_take(const GroupRecord& group, std::size_t member,
                              std::size_t target) const {
    const ServerRecord& server = servers_[target];
    if (server.pool_free_bytes < request_.region_bytes) return false;
    if (std::find(request_.draining.begin(), request_.draining.end(), server.name) !=
        request_.draining.end())
      return false;
    for (const Member& each : group.members)
      if (each.server == server.name) return false;
    return request_.allow_same_domain || !shares_domain(group, member, server);
  }
  /// The emptiest server that may take the member.
  [[nodiscard]] std::optional<std::size_t> target_for(const GroupRecord& group,
                                                      std::size_t member) const {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < servers_.size(); ++i)
      if (may_take(group, member, i) && (!best || load(i) < load(*best))) best = i;
    return best;
  }
  [[nodiscard]] bool may_move(const Member& member) const {
    if (member.state != MemberState::kInSync) return false;
    return std::none_of(moves_.begin(), moves_.end(),
                        [&](const PlannedMove& move) { return move.region == member.region; });
  }
  void move(GroupRecord& group, std::size_t member, std::size_t target) {
    Member& moved = group.members[member];
    if (const auto from = index_of(moved.server))
      servers_[*from].pool_free_bytes += request_.region_bytes;
    servers_[target].pool_free_bytes -= request_.region_bytes;
    moves_.push_back({group.index, moved.region, servers_[target].name});
    moved.server = servers_[target].name;
  }

  void separate_domains() {
    for (GroupRecord& group : groups_)
      for (std::size_t i = group.members.size(); i-- > 1;) {  // backups, the last one first
        const auto server = index_of(group.members[i].server);
        if (!server || !may_move(group.members[i]) || !shares_domain(group, i, servers_[*server]))
          continue;
        if (const auto target = target_for(group, i)) move(group, i, *target);
      }
  }

  bool move_from_fullest() {
    std::vector<std::size_t> order(servers_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [this](std::size_t left, std::size_t right) {
      return load(left) > load(right);
    });
    return std::any_of(order.begin(), order.end(),
                       [this](std::size_t from) { return move_one_from(from); });
  }
  bool move_one_from(std::size_t from) {
    const auto bytes = static_cast<std::int64_t>(request_.region_bytes);
    for (const bool primaries : {false, true})
      for (GroupRecord& group : groups_)
        for (std::size_t i = 0; i < group.members.size(); ++i) {
          if ((i == 0) != primaries || group.members[i].server != servers_[from].name ||
              !may_move(group.members[i]))
            continue;
          const auto target = target_for(group, i);
          if (!target || load(*target, bytes) > load(from, -bytes)) continue;
          move(group, i, *target);
          return true;
        }
    return false;
  }

  const MovePlanRequest& request_;
  std::vector<GroupRecord> groups_;
  std::vector<ServerRecord> servers_;
  std::vector<PlannedMove> moves_;
};

}  // namespace

std::vector<PlannedMove> plan_moves(const MovePlanRequest& request) {
  return MovePlanner{request}.plan();
}

}  // namespace remora::volume::detail
