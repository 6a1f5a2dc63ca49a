#pragma once

/// Makes the groups of a volume: their regions and their keys.

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/result.h>
#include <remora/volume/cluster.h>
#include <remora/volume/management.h>
#include <remora/volume/placement.h>

#include "member_servers.h"

namespace remora::volume {

/// One creation, or one growth. undo() removes what it has made. One thread.
class VolumeBuilder {
 public:
  VolumeBuilder(const Cluster& cluster, const Engine& engine, std::uint64_t generation)
      : cluster_{cluster}, servers_{engine}, generation_{generation} {}

  /// Makes a region for each member of the groups from `first` on. `template_spec`: all but name,
  /// size and block. What a mirror needs there is zeroes, as the server creates it: its first
  /// claimant writes headers.
  Managed<void> make_regions(const VolumeRecord& volume, std::uint64_t first,
                             const std::vector<ServerRecord>& servers, const Placement& placement,
                             const RegionSpec& template_spec, const Progress& progress);
  /// Writes the keys of these groups, while the volume's key is `volume_value` and none of their
  /// servers is drained.
  Managed<void> write_groups(const VolumeRecord& volume, const std::string& volume_value);
  /// Removes the regions and the keys of the groups. Changes the volume's key first, so that no
  /// transaction without an answer applies later. If another client has changed that key, the
  /// regions go that the volume does not use now. If the store does not answer, all stay, since
  /// such a transaction may have made the volume use them. `volume`: as its key has it, with the
  /// text `volume_value`; out, what its key has then. The text says what is left; empty: nothing.
  std::string undo(const VolumeRecord& volume, std::string& volume_value);

  /// Whether a region may be there that undo() could not remove. It is found by its name, while the
  /// volume's key tells the volume's id.
  [[nodiscard]] bool left_regions() const noexcept { return left_regions_; }

  /// Conditions of each transaction: the generation, that no writer has the claim, and the value of
  /// the volume's key.
  [[nodiscard]] std::vector<Compare> conditions(const std::string& volume,
                                                const std::string& volume_value) const;

 private:
  [[nodiscard]] Transaction transaction_of(const VolumeRecord& volume,
                                           const std::string& volume_value, std::size_t at) const;
  [[nodiscard]] Error why_refused(const std::string& volume) const;
  /// The members' regions of the volume as the store has it now. Errors: those of the store; kBusy
  /// (it was restored).
  [[nodiscard]] Result<std::set<std::string>> regions_in_use(const VolumeRecord& volume) const;
  /// Removes the regions that were made, but for those in `used`; what is left, as undo().
  std::string remove_regions(const std::set<std::string>& used);

  const Cluster& cluster_;
  MemberServers servers_;
  const std::uint64_t generation_;
  std::vector<GroupRecord> groups_;
  bool left_regions_ = false;
};

/// Removes the keys of a volume's groups, then calls nothing else. Errors: those of the store;
/// kBusy (the volume's key has changed).
Status remove_group_keys(const Cluster& cluster, const std::vector<Compare>& conditions,
                         const std::vector<std::string>& keys);

/// A Failure to return.
[[nodiscard]] tl::unexpected<Failure> failure(const Error& error, std::string detail = {});

}  // namespace remora::volume
