#pragma once

/// Parts of the operations of a mirror's queue that one thread carries out together.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "group_operation.h"
#include "mirror_member.h"
#include "mirror_queue_entry.h"
#include "stripe_map.h"

namespace remora::volume::detail {

/// Reads of one group, or writes of one group, or an atomic. One thread.
class MirrorParts {
 public:
  void clear() noexcept { count_ = bytes_ = 0; }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool full() const noexcept { return count_ == operations_.size(); }

  /// Cuts the next part of `entry`, which begins at `place`. False: it goes not with those that are
  /// here.
  bool add(MirrorQueueEntry& entry, const Place& place) noexcept {
    const std::uint64_t length_bytes =
        std::min(place.left_bytes, entry.length_bytes - entry.cut_bytes);
    const VolumeOperation kind =
        entry.kind == VolumeOperation::kZeroes ? VolumeOperation::kWrite : entry.kind;
    if (empty()) {
      kind_ = kind;
      group_ = place.group;
    } else if (full() || kind != kind_ || kind == VolumeOperation::kAtomic ||
               place.group != group_ || bytes_ + length_bytes > kBytesMax) {
      return false;
    }
    GroupOperation& part = operations_[count_];
    part = {.offset_bytes = place.offset_bytes, .length_bytes = length_bytes, .until = entry.until};
    if (entry.kind == VolumeOperation::kRead)
      part.into = entry.into.part(entry.cut_bytes, length_bytes);
    else if (entry.kind == VolumeOperation::kWrite)
      part.from = entry.from.part(entry.cut_bytes, length_bytes);
    entries_[count_++] = &entry;
    bytes_ += length_bytes;
    entry.cut_bytes += length_bytes;
    ++entry.parts_left;
    return true;
  }

  // Only if it is not empty:
  [[nodiscard]] VolumeOperation kind() const noexcept { return kind_; }
  [[nodiscard]] std::uint32_t group() const noexcept { return group_; }
  [[nodiscard]] std::span<GroupOperation> operations() noexcept {
    return std::span{operations_}.first(count_);
  }
  /// The operation of which operations()[index] is a part.
  [[nodiscard]] MirrorQueueEntry& entry(std::size_t index) const noexcept {
    return *entries_[index];
  }

 private:
  /// Longer parts go alone: each keeps a connection busy by itself.
  static constexpr std::uint64_t kBytesMax = std::uint64_t{256} << 10U;

  VolumeOperation kind_ = VolumeOperation::kRead;
  std::uint32_t group_ = 0;
  std::size_t count_ = 0;
  std::uint64_t bytes_ = 0;
  std::array<GroupOperation, MemberLane::kOperationsMax> operations_{};
  std::array<MirrorQueueEntry*, MemberLane::kOperationsMax> entries_{};
};

}  // namespace remora::volume::detail
