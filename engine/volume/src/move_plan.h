#pragma once

/// Which members of a mirror should be on other servers.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <remora/volume/records.h>

namespace remora::volume::detail {

struct PlannedMove {
  std::uint64_t group = 0;
  std::string region{};  ///< of the member that moves
  std::string target{};  ///< the name of the server

  friend bool operator==(const PlannedMove&, const PlannedMove&) = default;
};

struct MovePlanRequest {
  std::span<const GroupRecord> groups{};
  /// Registered, with their free bytes.
  std::span<const ServerRecord> servers{};
  std::span<const std::string> draining{};  ///< no target
  std::uint64_t region_bytes = 0;
  bool allow_same_domain = false;
};

/// First members that share a failure domain with another one, then members of the fullest servers,
/// as long as the target is not fuller afterwards than the server that the member leaves. Backups
/// move before primaries, since a primary's move pauses the group. No member moves twice.
[[nodiscard]] std::vector<PlannedMove> plan_moves(const MovePlanRequest& request);

}  // namespace remora::volume::detail
