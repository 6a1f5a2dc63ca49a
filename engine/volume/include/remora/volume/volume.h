#pragma once

/// A volume that this process has opened: a block address space over regions of several servers.
///
///   auto engine = remora::Engine::open({}).value();
///   auto cluster = remora::volume::Cluster::open(uri).value();
///   auto volume = remora::volume::Volume::open(engine, cluster, "scratch").value();
///   volume.write(remora::ByteOffset{0}, bytes).value();
///
/// Only striped volumes can be opened. Each byte of such a volume is in one region of one server.
/// A group goes with its server's memory: then operations on it fail with kStaleRegion, and all
/// other groups continue.

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

namespace detail {
class VolumeCore;
}

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
  TransportKind transport = TransportKind::kAuto;  ///< kAuto: it is not open
  bool connected = false;                          ///< Region::connected()
  GroupHealth health = GroupHealth::kOk;
  std::string error{};  ///< VolumeOptions::partial: why it is not open
};

/// Copyable handle, thread-safe: any number of threads may call the synchronous functions at once.
/// The regions are closed with the last copy and the last queue.
///
/// A handle stays with the regions that it has opened. Open the volume again after kStaleRegion,
/// after kConnectionLost, and to reach what was added since.
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
  /// server, and a request for each group. Errors: kUnsupported (a mirror; shm); kProtocol (records
  /// that do not fit each other, a region that is smaller than its group); kStaleRegion (the
  /// server has other memory, or the group is lost); those of Engine::open_region(). The subject
  /// names volume, group and member.
  static Result<Volume> open(const Engine& engine, const VolumeLayout& layout,
                             const VolumeOptions& options = {});
  /// Reads the layout first. Errors: also those of Cluster::layout().
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

  /// Errors: kInvalidArgument (depth), kOutOfMemory.
  Result<VolumeQueue> queue(const QueueOptions& options = {}) const;

  /// Synchronous operations, 1 byte to the whole volume. They block until they are done, at most
  /// `deadline` (zero: VolumeOptions::operation_deadline) plus two seconds; one that is cut may
  /// take twice that deadline (volume_queue.h). One within a stripe unit allocates nothing. A
  /// longer one uses a queue that the volume keeps for such operations. Errors: as
  /// VolumeCompletion::error(); kOutOfMemory.
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
  /// can take effect any more. Tries all groups; returns the first error, with the group's name.
  Status settled(std::chrono::nanoseconds deadline) const;
  /// Returns the value before: equal to `expected` means swapped.
  Result<std::uint64_t> compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                                     std::chrono::nanoseconds deadline = {}) const;
  /// Returns the value before; wraps at 2^64.
  Result<std::uint64_t> fetch_add(ByteOffset at, std::uint64_t delta,
                                  std::chrono::nanoseconds deadline = {}) const;

 private:
  [[nodiscard]] ByteOffset offset_of(Block block) const noexcept;
  remora::detail::OwnedShared<detail::VolumeCore> core_;
};

}  // namespace remora::volume
