#pragma once

/// Chooses the servers of groups.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <remora/result.h>
#include <remora/volume/records.h>

namespace remora::volume {

/// What is to be placed, and where it may be.
struct PlacementRequest {
  std::uint64_t groups = 0;
  std::uint64_t group_bytes = 0;  ///< of one member's region, in whole pages of a pool
  std::uint32_t width = 1;        ///< groups of a row go to different servers where possible
  std::uint32_t copies = 1;
  /// Copies of a group may be in one failure domain, never on one server.
  bool allow_same_domain = false;
  /// Only these; empty: all.
  std::vector<std::string> servers{};
  /// The sets of the last row that is there already, as in Placement::groups; an empty set: none.
  /// New rows use them again while they have room.
  std::vector<std::vector<std::size_t>> above{};
};

/// The room of one failure domain, where a volume did not fit.
struct DomainRoom {
  std::string domain{};
  std::uint64_t free_bytes = 0;     ///< in whole groups
  std::uint64_t missing_bytes = 0;  ///< with these bytes more in each domain, the volume fits
  /// Where copies may be in one failure domain: its servers that lack these bytes. Otherwise empty:
  /// any server of the domain may have them.
  std::vector<std::string> servers{};
};

/// The servers of each group, or why there are none.
struct Placement {
  /// [group][copy]: index in the list of servers that was given. Empty: it does not fit.
  std::vector<std::vector<std::size_t>> groups{};
  /// If it does not fit: each domain, how many domains there must be, and how many there are.
  std::vector<DomainRoom> rooms{};
  std::uint32_t domains_needed = 0;
  std::uint32_t domains_usable = 0;
  /// These two count servers: copies may be in one failure domain (allow_same_domain).
  bool of_servers = false;

  /// False: `rooms` says what is missing.
  [[nodiscard]] bool fits() const noexcept { return !groups.empty(); }
  /// What is missing, in one line: "rack1: 2GiB free in whole groups, 1GiB missing; ...".
  [[nodiscard]] std::string missing() const;
};

/// Spreads groups over servers by their free bytes. Copies of one group go to different failure
/// domains. Mirrors use few distinct sets of servers: a row's sets repeat in the next row while
/// they have room. Finds a placement if there is one.
[[nodiscard]] Placement place(std::span<const ServerRecord> servers,
                              const PlacementRequest& request);

/// A member that a group needs in place of another one.
struct ReplacementRequest {
  std::uint64_t region_bytes = 0;
  /// The servers of the members that the group keeps: none of them gets a second copy.
  std::vector<std::string> kept{};
  /// Servers that get no copy, for example one that is drained.
  std::vector<std::string> excluded{};
  bool allow_same_domain = false;
  /// The servers of the volume's other groups, one set a group: of equally good servers, one that
  /// holds copies together with `kept` already is chosen.
  std::vector<std::vector<std::string>> sets{};
};

/// The index of the server; empty: none has the room, or a failure domain of its own. A kept server
/// that is not registered counts as a failure domain of its own.
[[nodiscard]] std::optional<std::size_t> place_replacement(std::span<const ServerRecord> servers,
                                                           const ReplacementRequest& request);

}  // namespace remora::volume
