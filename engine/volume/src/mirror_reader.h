#pragma once

/// Reads of a mirror by clients that have not claimed it.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <remora/engine/buffer.h>
#include <remora/engine/types.h>
#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/volume/cluster.h>

#include "group_operation.h"
#include "member_opener.h"
#include "mirror_options.h"

namespace remora::volume::detail {

/// Rules 4, 23 and 29: reads the primary of each group, under a configuration that a request to the
/// store has confirmed less than T ago. Opens members at the first read of their group.
/// Thread-safe. A read takes the mutex of its group for the copy of one pointer: configurations
/// change while others read, and a read that waits for a dead server must not keep them waiting.
class MirrorReader {
 public:
  using Time = std::chrono::steady_clock::time_point;

  MirrorReader(const Cluster& cluster, const VolumeLayout& layout,
               std::shared_ptr<MemberOpener> opener, const MirrorOptions& options);

  /// Within one group. Errors: kBusy (another client writes the volume alone); kStaleRegion (the
  /// group is lost, or the volume is another one); those of the store and of the member, if they
  /// last until `until`.
  Status read(std::uint32_t group, std::uint64_t offset_bytes, const Target& into, Time until);
  /// At most MemberLane::kOperationsMax reads, in flight together. Each ends as read() would end
  /// it.
  void read_together(std::uint32_t group, std::span<GroupOperation> reads);
  /// Whether the group's primary is open.
  [[nodiscard]] bool is_open(std::uint32_t group) const;
  /// Of the group's primary; kAuto: it was not opened yet.
  [[nodiscard]] TransportKind transport(std::uint32_t group) const;

 private:
  /// A configuration, and the grant on its primary.
  struct View {
    std::string value{};
    std::shared_ptr<MirrorMember> primary{};
    std::atomic<std::int64_t> confirmed_at{0};  ///< 0: not since the grant was obtained
  };
  struct Group {
    mutable remora::detail::Mutex mutex;
    std::shared_ptr<View> view REMORA_GUARDED_BY(mutex);
    remora::detail::Mutex refreshing;  ///< held while the store and the member are asked
  };

  /// Offsets are those in the member's region.
  Status read_all(std::uint32_t index, std::span<const MemberRead> reads, Time until);
  [[nodiscard]] std::shared_ptr<View> view_of(const Group& group) const;
  [[nodiscard]] std::chrono::nanoseconds age_of(const View& view) const noexcept;
  [[nodiscard]] bool is_confirmed(const View& view) const noexcept {
    return view.confirmed_at.load(std::memory_order_acquire) != 0 &&
           age_of(view) < options_.times.confirmed_for;
  }
  /// Reads the store; opens the primary if it is another one. One thread at a time; a thread whose
  /// turn comes after `until` asks nothing: kWouldBlock.
  Status refresh(std::uint32_t index, Group& group, Time until);
  /// The group's record, if a client may read under it.
  Result<GroupRecord> readable(const Snapshot& snapshot, const std::string& group_key) const;

  const Cluster cluster_;
  const VolumeRecord volume_;
  const std::uint64_t data_offset_;
  const std::shared_ptr<MemberOpener> opener_;
  const MirrorOptions options_;
  std::vector<std::unique_ptr<Group>> groups_;
};

}  // namespace remora::volume::detail
