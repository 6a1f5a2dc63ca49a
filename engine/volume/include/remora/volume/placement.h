#pragma once

/// Chooses the servers of groups.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <remora/result.h>
#include <remora/volume/records.h>

namespace remora::volume {

/// What is to be placed, and where it may be.
struct PlacementRequest {
  std::uint64_t groups = 0;
  std::uint64_t group_bytes = 0;  ///< of one member, in whole pages of a pool
  std::uint32_t width = 1;        ///< groups of a row go to different servers where possible
  std::uint32_t copies = 1;
  /// Copies of a group may be in one failure domain, never on one server.
  bool allow_same_domain = false;
  /// Only these; empty: all.
  std::vector<std::string> servers{};
};

/// The room of one failure domain, where a volume did not fit.
struct DomainRoom {
  std::string domain{};
  std::uint64_t free_bytes = 0;     ///< in whole groups
  std::uint64_t missing_bytes = 0;  ///< to place all groups, with the load spread evenly
};

/// The servers of each group, or why there are none.
struct Placement {
  /// [group][copy]: index in the list of servers that was given. Empty: it does not fit.
  std::vector<std::vector<std::size_t>> groups{};
  /// If it does not fit: each domain, and how many domains there must be.
  std::vector<DomainRoom> rooms{};
  std::uint32_t domains_needed = 0;

  /// False: `rooms` says what is missing.
  [[nodiscard]] bool fits() const noexcept { return !groups.empty(); }
  /// What is missing, in one line: "rack1: 2 GiB free, 1 GiB missing; ...".
  [[nodiscard]] std::string missing() const;
};

/// Spreads groups over servers by their free bytes. Copies of one group go to different failure
/// domains. Mirrors use few distinct sets of servers: a row's sets repeat in the next row while
/// they have room.
[[nodiscard]] Placement place(std::span<const ServerRecord> servers,
                              const PlacementRequest& request);

}  // namespace remora::volume
