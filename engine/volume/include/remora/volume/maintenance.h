#pragma once

/// Work on volumes that exist: repair, more copies, balance, and servers that leave.
///
/// All of it needs a client that may create regions on the servers, and writes to regions of the
/// volume. A mirror is changed by its claimed writer only: the functions claim the volume, and
/// release it at the end. An interruption at any time, also of the process, leaves a volume that
/// can be used; the same function goes on with the work.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/result.h>
#include <remora/volume/cluster.h>
#include <remora/volume/management.h>
#include <remora/volume/records.h>

namespace remora::volume {

class Volume;

/// How a member is, as far as the records of the cluster tell.
enum class MemberCondition : std::uint8_t {
  kOk,
  kNotRegistered,  ///< its server is not registered at the moment
  kOtherMemory     ///< its server has other memory: the member's bytes are gone
};
/// "ok", "not registered" or "lost: other memory".
[[nodiscard]] std::string_view to_string(MemberCondition condition) noexcept;
/// By the record of its server.
[[nodiscard]] MemberCondition condition_of(const VolumeLayout& layout,
                                           const Member& member) noexcept;

/// What a group of a volume is able to do.
enum class GroupCondition : std::uint8_t {
  kOk,           ///< it has all its copies
  kDegraded,     ///< fewer copies than the volume shall have; its bytes are there
  kPromoting,    ///< another member becomes the primary; operations wait
  kUnreachable,  ///< no server with its bytes is registered at the moment
  kLost          ///< no server has its bytes any more
};
/// "ok", "degraded", "promoting", "unreachable" or "lost".
[[nodiscard]] std::string_view to_string(GroupCondition condition) noexcept;
/// By the records of the servers of its members in sync.
[[nodiscard]] GroupCondition condition_of(const VolumeLayout& layout,
                                          const GroupRecord& group) noexcept;

/// How far a work has come.
struct MaintenanceProgress {
  std::string work{};  ///< "group 3 on s4"
  std::uint64_t done_bytes = 0;
  std::uint64_t all_bytes = 0;  ///< of the whole work, as far as it is known
};

/// The most groups whose copies are made at once.
inline constexpr std::uint32_t kGroupsAtOnceMax = 64;

/// How a work on a volume proceeds: its limits, and what it tells and asks meanwhile.
struct MaintenanceOptions {
  /// Takes the claim from a writer that is alive.
  bool steal = false;
  /// Of all copies together, in bytes that are read in a second; 0: no limit.
  std::uint64_t bytes_per_second_max = 0;
  /// Zones (1 MiB) of a group that are copied at once, each by a thread; 1: by the caller's.
  std::uint32_t zones_at_once = 4;
  /// Groups of a volume whose copies are made or moved at once, 1 to kGroupsAtOnceMax.
  std::uint32_t groups_at_once = 4;
  /// For each step that waits for servers or the store.
  std::chrono::nanoseconds step_limit = std::chrono::seconds{30};
  /// Called by the threads that copy, one call at a time; so is `stop`. Neither may throw.
  std::function<void(const MaintenanceProgress&)> progress{};
  /// Asked before each server is asked for its regions and its memory, and before each zone is
  /// copied. True: the work ends with kCancelled; what is done stays, and copies that are not
  /// complete are removed.
  std::function<bool()> stop{};
};

/// What a work on a volume has done, and what it has left.
struct MaintenanceReport {
  std::uint64_t groups = 0;         ///< that were looked at
  std::uint64_t members_added = 0;  ///< copies that were made
  std::uint64_t members_moved = 0;
  std::uint64_t bytes_copied = 0;
  std::uint64_t regions_removed = 0;  ///< which no group used any more
  /// The remains of an interrupted creation or removal were cleared; there is no volume any more.
  bool cleared = false;
  /// What could not be done, one sentence each. Empty: all is done.
  std::vector<std::string> left{};
};

/// Makes the volume whole: clears what an interrupted creation or removal has left; of a mirror,
/// makes members equal after a writer that died, rebuilds missing members on servers with room, and
/// removes regions that no group uses, but for those that may hold bytes which a restored store has
/// forgotten: `left` names these. Errors: kNotFound; kBusy (a writer has the claim, or another
/// client changes the volume); kCancelled; those of Cluster and Session.
Managed<MaintenanceReport> repair_volume(const Cluster& cluster, const Engine& engine,
                                         std::string_view name,
                                         const MaintenanceOptions& options = {});

/// The same for a mirror whose claim this process holds by `volume`, which goes on with its
/// operations meanwhile. Errors: as repair_volume(); kInvalidArgument (`volume` has no claim);
/// kBusy (another thread does the same).
Managed<MaintenanceReport> repair_claimed(const Cluster& cluster, const Engine& engine,
                                          const Volume& volume,
                                          const MaintenanceOptions& options = {});

/// The same by the cluster and the client that have opened `volume`, of which the engine may have
/// ended. Errors: also kUnsupported (striped); kClosed (`volume` was moved from).
Managed<MaintenanceReport> repair_claimed(const Volume& volume,
                                          const MaintenanceOptions& options = {});

/// Claims a mirror, which makes the members of each group equal, and calls `claimed`. Holds the
/// claim until `options.stop`, which is asked ten times a second, says so, then releases it. No
/// other client can write to the volume meanwhile. Errors: as repair_volume(); kAccessRefused
/// (another client has taken the claim).
Managed<void> hold_claim(const Cluster& cluster, const Engine& engine, std::string_view name,
                         const MaintenanceOptions& options,
                         const std::function<void(const VolumeRecord&)>& claimed);
/// Ends the claim of another client, also of one that is alive: takes it, makes the members equal,
/// and releases it. Errors: as repair_volume().
Managed<void> release_claim(const Cluster& cluster, const Engine& engine, std::string_view name,
                            const MaintenanceOptions& options = {});

/// Moves members of a mirror from full servers to empty ones. Errors: as repair_volume();
/// kUnsupported (a striped volume has one copy, which cannot move while clients write).
Managed<MaintenanceReport> rebalance_volume(const Cluster& cluster, const Engine& engine,
                                            std::string_view name,
                                            const MaintenanceOptions& options = {});

/// Gives each group of a mirror one copy more. Errors: as repair_volume(); kUnsupported (striped);
/// kLimitExceeded (kCopiesMax).
Managed<MaintenanceReport> add_copy(const Cluster& cluster, const Engine& engine,
                                    std::string_view name, const MaintenanceOptions& options = {});

/// Marks the server, so that no volume gets new members there, and moves the members of mirrors
/// elsewhere. `left` names what stays, groups of striped volumes among them. Errors: kNotFound (no
/// such server, and no member on it); kCancelled; those of the store.
Managed<MaintenanceReport> drain_server(const Cluster& cluster, const Engine& engine,
                                        std::string_view server,
                                        const MaintenanceOptions& options = {});
/// Takes the mark away. Errors: those of the store.
Managed<void> end_drain_server(const Cluster& cluster, std::string_view server);

/// Which groups accept_loss() takes.
struct AcceptLossOptions {
  /// Only these groups; empty: all that are lost.
  std::vector<std::uint64_t> groups{};
  /// A member whose server cannot be reached counts as lost, too. Its bytes are given up for good.
  bool forget_unreachable = false;
};
/// Gives lost groups new, empty members: their bytes are zeros afterwards. A mirror is claimed for
/// that at the end, which waits for readers of the old members, some seconds. Returns the groups.
/// Errors: kNotFound (no volume, or no group is lost); kUnreachable (a member's server, and of a
/// restored record any server: it may have the bytes); kBusy (a writer has the claim; or regions
/// that a restored record does not name are newer: restore_from_headers()); kProtocol (one of them
/// has a damaged header); kLimitExceeded (no room).
Managed<std::vector<std::uint64_t>> accept_loss(const Cluster& cluster, const Engine& engine,
                                                std::string_view name,
                                                const AcceptLossOptions& options = {});

/// For a mirror whose records are older than its members: after an import or a restore of the
/// store, where a claim finds headers that are ahead of the records, or a member that it cannot
/// reach. Makes the records of such groups anew from the headers of the members that are there:
/// those whose header is the newest. The next claim checks and adopts them. Returns the groups. If
/// `forget_unreachable`, servers that do not answer are passed over; if one of them has newer bytes
/// than all others, acknowledged writes are lost. A group that cannot be restored, for which the
/// error is, does not keep the others. Errors: kNotFound (no volume, or no group has to
/// be restored); kUnreachable (a server); kBusy (a writer has the claim); kProtocol (headers that
/// cannot be compared); kUnsupported (striped).
Managed<std::vector<std::uint64_t>> restore_from_headers(const Cluster& cluster,
                                                         const Engine& engine,
                                                         std::string_view name,
                                                         bool forget_unreachable = false);

/// Changes the generation of the cluster: after its store was restored from a snapshot, before any
/// client can reach it. Mirrors are used again only after a claim has compared all their members.
/// Returns the new generation. Errors: those of the store.
Managed<std::uint64_t> renew_generation(const Cluster& cluster);

}  // namespace remora::volume
