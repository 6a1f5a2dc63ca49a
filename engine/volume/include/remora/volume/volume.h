#pragma once

/// A volume that this process has opened: a block address space over regions of several servers.
///
///   auto engine = remora::Engine::open({}).value();
///   auto cluster = remora::volume::Cluster::open(uri).value();
///   auto volume = remora::volume::Volume::open(engine, cluster, "scratch").value();
///   volume.write(remora::ByteOffset{0}, bytes).value();
///
/// Each byte of a *striped* volume is in one region of one server. A group goes with its server's
/// memory: then operations on it fail with kStaleRegion, and all other groups continue.
///
/// A *mirror* has each byte on several servers. It has one writer at a time, which claims it:
///
///   auto volume = remora::volume::Volume::open(engine, cluster, "disk").value();
///   volume.claim().value();
///   volume.write(remora::ByteOffset{0}, bytes).value();

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <remora/engine/buffer.h>
#include <remora/engine/engine.h>
#include <remora/engine/types.h>
#include <remora/owned.h>
#include <remora/result.h>
#include <remora/volume/cluster.h>
#include <remora/volume/records.h>
#include <remora/volume/volume_options.h>
#include <remora/volume/volume_queue.h>

namespace remora::volume {

class Volume;

namespace detail {
class MirrorWriter;
class VolumeCore;
std::shared_ptr<MirrorWriter> mirror_writer_of(const Volume& volume);
/// Errors: kClosed.
Result<std::shared_ptr<VolumeCore>> core_of(const Volume& volume, Operation operation);
}  // namespace detail

/// What this process knows of a group. Only operations find out about kLost and kRevoked, which end
/// the use of the group by this handle; kUnreachable may pass.
enum class GroupHealth : std::uint8_t {
  kOk,
  kUnreachable,  ///< no session with its server; or it could not be opened (VolumeOptions::partial)
  kLost,         ///< its server has other memory: all bytes of the group are gone
  kRevoked       ///< the grant on its region was revoked, or fenced
};
/// "ok", "unreachable", "lost" or "revoked".
[[nodiscard]] std::string_view to_string(GroupHealth health) noexcept;

/// A group as this process has it open.
struct GroupState {
  std::uint32_t index = 0;
  std::string server{};  ///< the name of the member's server in the cluster
  std::string region{};
  /// kAuto: it is not open. Of a claimed mirror: kRdma if any of its members is over rdma.
  TransportKind transport = TransportKind::kAuto;
  /// Members in sync. Of a mirror that this process has not claimed: as its record was.
  std::uint32_t copies = 1;
  bool connected = false;  ///< Region::connected()
  GroupHealth health = GroupHealth::kOk;
  std::string error{};  ///< VolumeOptions::partial: why it is not open
};

/// Copyable handle, thread-safe: any number of threads may call the synchronous functions at once.
/// The regions are closed with the last copy and the last queue.
///
/// A striped volume's handle stays with the regions that it has opened. Open the volume again after
/// kStaleRegion, after kConnectionLost, and to reach what was added since.
///
/// A mirror's handle follows its members: it need not be opened again, but for a growth.
///
/// A volume that was moved from answers kClosed; its record() is empty.
///
/// An operation that goes beyond a stripe unit is cut there, and its parts are in flight on several
/// servers at once. When it fails, other parts may have taken effect. Only compare_swap and
/// fetch_add are atomic, and only among themselves.
///
/// The engine's registry shows the open volumes and their groups by health, as sums over all
/// volumes (metrics/docs/catalogue.md). Operations are counted as those of regions, each part once.
class Volume {
 public:
  /// Opens the region of each group, by the memory id of its server. Blocks: a session for each
  /// server, and a request for each group. Errors: kUnsupported (a mirror, which needs its cluster;
  /// shm); kProtocol (records
  /// that do not fit each other, a region that is smaller than its group); kStaleRegion (the
  /// server has other memory, or the group is lost); those of Engine::open_region(). The subject
  /// names volume, group and member.
  static Result<Volume> open(const Engine& engine, const VolumeLayout& layout,
                             const VolumeOptions& options = {});
  /// Reads the layout first. A mirror opens the members of a group at the first read, and those of
  /// all groups by claim(); it keeps what it needs of the engine, which may be moved, and may end
  /// before. Errors: also those of Cluster::layout().
  static Result<Volume> open(const Engine& engine, const Cluster& cluster, std::string_view name,
                             const VolumeOptions& options = {});
  /// For open().
  explicit Volume(std::shared_ptr<detail::VolumeCore> core) noexcept;

  /// As the layout had it when the volume was opened. Borrowed from this handle.
  [[nodiscard]] const VolumeRecord& record() const noexcept;
  /// Bytes of the address space; 0: moved from.
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return record().size_bytes; }
  /// The unit of Block; 0: moved from.
  [[nodiscard]] std::uint64_t block_bytes() const noexcept { return record().block_bytes; }
  /// Whole blocks of the address space; 0: moved from.
  [[nodiscard]] std::uint64_t block_count() const noexcept {
    return block_bytes() == 0 ? 0 : size_bytes() / block_bytes();  // 0: moved from
  }
  /// The rights of the grants on the regions.
  [[nodiscard]] Rights rights() const noexcept;
  /// One entry for each group, as it is at the moment. Allocates.
  [[nodiscard]] std::vector<GroupState> groups() const;

  /// Of a mirror: makes this handle, with all its copies, the one writer. Other clients' claims
  /// end: no operation of theirs takes effect any more. Then groups are repaired: the bytes that a
  /// writer before has left unequal are made equal. Blocks: two requests for each group, and a copy
  /// of each zone of 1 MiB that is marked. The claim is renewed by a thread until release(), or
  /// until the last copy of the handle ends. Errors: kBusy (another client renews a claim: the
  /// subject is its identity); kUnsupported (striped); kAlreadyExists (claimed already); kNoRight
  /// (opened with neither Rights::kWrite nor kAtomic); kStaleRegion (a group is lost); those of the
  /// members and of the store.
  Status claim(const ClaimOptions& options = {}) const;
  /// Ends the claim. Errors: kNotFound (not claimed); kAccessRefused with Reason::kFenced (another
  /// client has claimed the volume); those of the store.
  Status release() const;
  /// Whether this handle has claimed the volume, and has not noticed another claim.
  [[nodiscard]] bool claimed() const;

  /// Of a mirror: depth 1 to 1024; it writes while this handle has the claim, otherwise it reads.
  /// It stays valid over claim() and release(), and keeps the volume open. Errors: kInvalidArgument
  /// (depth), kOutOfMemory; of a mirror also kSystem with Reason::kNoThread.
  Result<VolumeQueue> queue(const QueueOptions& options = {}) const;

  /// Synchronous operations, 1 byte to the whole volume. They block until they are done, at most
  /// `deadline` (zero: VolumeOptions::operation_deadline) plus two seconds; one that is cut may
  /// take twice that deadline (volume_queue.h). One within a stripe unit allocates nothing. A
  /// longer one uses a queue that the volume keeps for such operations. Errors: as
  /// VolumeCompletion::error(); kOutOfMemory.
  ///
  /// Of a mirror: parts of an operation are cut at stripe units and at each MiB of a group, and
  /// carried out one after the other; reads need the store every 2 s, writes need a claim (kNoRight
  /// without). An operation may take 3 s longer for each member that does not answer, and the
  /// store's limit. kIndeterminate: some members may have the bytes; the writer makes all members
  /// equal, with the old bytes, the new ones or a mixture. kAccessRefused with Reason::kFenced:
  /// another client has claimed the volume.
  Status read(ByteOffset from, Target into, std::chrono::nanoseconds deadline = {}) const;
  /// As above, from the start of the block.
  Status read(Block from, Target into, std::chrono::nanoseconds deadline = {}) const;
  /// Writes all bytes of `from`. Blocks, as read().
  Status write(ByteOffset to, Source from, std::chrono::nanoseconds deadline = {}) const;
  /// As above, from the start of the block.
  Status write(Block to, Source from, std::chrono::nanoseconds deadline = {}) const;
  /// As a write of this many zeroes, without a buffer.
  Status write_zeroes(ByteOffset at, std::uint64_t length_bytes,
                      std::chrono::nanoseconds deadline = {}) const;
  /// Region::flush_visible() on the session of each server that is open.
  Status flush_visible(std::chrono::nanoseconds deadline = {}) const;
  /// Region::settled() for each group that is open: no operation that has ended as kIndeterminate
  /// can take effect any more. Tries all groups; returns the first error, with the group's name. Of
  /// a mirror: its members are equal; kTimedOut at once if release() has left some that are not.
  Status settled(std::chrono::nanoseconds deadline) const;
  /// Returns the value before: equal to `expected` means swapped.
  Result<std::uint64_t> compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                                     std::chrono::nanoseconds deadline = {}) const;
  /// Returns the value before; wraps at 2^64.
  Result<std::uint64_t> fetch_add(ByteOffset at, std::uint64_t delta,
                                  std::chrono::nanoseconds deadline = {}) const;

 private:
  friend std::shared_ptr<detail::MirrorWriter> detail::mirror_writer_of(const Volume& volume);
  friend Result<std::shared_ptr<detail::VolumeCore>> detail::core_of(const Volume& volume,
                                                                     Operation operation);
  [[nodiscard]] ByteOffset offset_of(Block block) const noexcept;
  remora::detail::OwnedShared<detail::VolumeCore> core_;
};

}  // namespace remora::volume
