#pragma once

/// Creates, grows and removes volumes. Needs a client that may create regions on the servers.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/region.h>
#include <remora/result.h>
#include <remora/volume/cluster.h>
#include <remora/volume/placement.h>
#include <remora/volume/records.h>

namespace remora::volume {

/// The parameters of create_volume().
struct VolumeSpec {
  std::string name{};
  std::uint64_t size_bytes = 0;      ///< a multiple of block_bytes
  std::uint64_t block_bytes = 4096;  ///< a power of two from 64 B to stripe_bytes
  Kind kind = Kind::kStriped;
  std::uint32_t copies = 1;  ///< striped: 1; a mirror: 2 to kCopiesMax
  /// A multiple of stripe_bytes. 0: kGroupBytesDefault, or less if one row then has the size.
  std::uint64_t group_bytes = 0;
  std::uint64_t stripe_bytes = kStripeBytesDefault;  ///< a power of two from kStripeBytesMin
  std::uint32_t width = 0;         ///< 0: kWidthDefault, or the number of servers if that is less
  bool allow_same_domain = false;  ///< copies of a group may be in one failure domain
  std::vector<std::string> servers{};  ///< only these; empty: all that are not drained
  /// RegionSpec::atomic_domain (striped) and RegionSpec::access of each region.
  std::string atomic_domain = "auto";
  std::vector<RegionAccess> access{};
};

/// An error with what does not fit in one: which servers, how many bytes.
struct Failure {
  Error error;
  std::string detail{};  ///< a sentence; may be empty
};

template <typename T>
using Managed = tl::expected<T, Failure>;

/// `done` of `all` regions.
using Progress = std::function<void(std::uint64_t done, std::uint64_t all)>;

/// All or nothing: after an error no region and no key of the volume is left, unless a server or
/// the store could not be reached for that; the detail says so then. Errors: kAlreadyExists;
/// kInvalidArgument; kLimitExceeded (with the bytes that are missing in each failure domain);
/// kNoRight; those of Cluster and Session.
Managed<VolumeRecord> create_volume(const Cluster& cluster, const Engine& engine,
                                    const VolumeSpec& spec, const Progress& progress = {});

/// Grows the volume to `size_bytes`, a multiple of its block size, by whole rows of groups; no
/// address moves. Clients see the new bytes when they open the volume again. Errors: those of
/// create_volume(); kInvalidArgument (smaller than it is); kBusy (another change of the volume, or
/// a writer has the claim of a mirror).
Managed<VolumeRecord> resize_volume(const Cluster& cluster, const Engine& engine,
                                    std::string_view name, std::uint64_t size_bytes,
                                    const Progress& progress = {});

/// What remove_volume() does about regions that are open or out of reach.
struct RemoveOptions {
  /// Removes regions that are open too.
  bool while_open = false;
  /// Forgets the regions on servers that cannot be reached, and those that this client does not
  /// see.
  bool forget_unreachable = false;
};
/// Also of a volume whose creation or removal was interrupted. Errors: kNotFound; kBusy (open: then
/// nothing has changed); kUnknownRegion (this client has no right to a region: the same);
/// kUnreachable (a server).
Managed<void> remove_volume(const Cluster& cluster, const Engine& engine, std::string_view name,
                            const RemoveOptions& options = {}, const Progress& progress = {});

/// The records of a volume as JSON, and back into a store that has lost them.
Managed<std::string> export_volume(const Cluster& cluster, std::string_view name);

/// What import_volume() may leave out.
struct ImportOptions {
  /// Leaves out members of mirrors whose servers have other memory. If the records are old, such a
  /// member may have been the one with the newest bytes: then acknowledged writes are lost.
  bool drop_lost_members = false;
};
/// A mirror is used again only after a claim has fenced all its members and compared their headers.
/// Errors: kAlreadyExists; kProtocol, kUnsupported (the text); kStaleRegion (a member's server has
/// other memory).
Managed<VolumeRecord> import_volume(const Cluster& cluster, std::string_view json,
                                    const ImportOptions& options = {});

}  // namespace remora::volume
