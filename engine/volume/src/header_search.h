#pragma once

/// The regions of a mirror on all servers, with their headers.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/volume/cluster.h>
#include <remora/volume/management.h>

#include "engine_member_regions.h"
#include "member_servers.h"
#include "newest_members.h"

namespace remora::volume::detail {

/// What was found of a group.
struct FoundGroup {
  std::vector<FoundMember> members{};
  /// A region whose header cannot be read, and why; empty: there is none. Nothing is known then of
  /// the newest members of this group.
  std::string unreadable{};
};

/// Looks on each server that is registered, or has members. One thread.
class HeaderSearch {
 public:
  /// Both are borrowed.
  HeaderSearch(const Engine& engine, const VolumeLayout& layout)
      : servers_{engine}, regions_{engine}, layout_{layout} {}

  /// Once. Blocks: a request for each server, and one for each region.
  void run();
  /// By index; null: no region of the group was found.
  [[nodiscard]] const FoundGroup* find(std::uint64_t group) const noexcept;
  /// The names of the servers that do not answer, with commas; empty: all have.
  [[nodiscard]] std::string unreachable() const;

 private:
  void search(const Session& session, const std::vector<RegionInfo>& regions,
              const std::string& server, const std::vector<std::string>& addresses);

  MemberServers servers_;
  EngineMemberRegions regions_;
  const VolumeLayout& layout_;
  std::map<std::uint64_t, FoundGroup> found_;
  std::set<std::string> unreachable_;
};

}  // namespace remora::volume::detail
