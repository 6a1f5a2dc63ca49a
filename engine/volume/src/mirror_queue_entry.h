#pragma once

/// The operations of a mirror's queue.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include <remora/engine/buffer.h>
#include <remora/result.h>

#include "volume_queue_entry.h"

namespace remora::volume::detail {

/// One operation. It is cut into parts, each within a stripe unit and a zone, as threads take them.
struct MirrorQueueEntry {
  MirrorQueueEntry* next = nullptr;  ///< in the list that it is in
  // Operations that were submitted and have not ended, in that order:
  MirrorQueueEntry* earlier = nullptr;
  MirrorQueueEntry* later = nullptr;
  std::uint64_t tag = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
  std::uint64_t cut_bytes = 0;  ///< of parts that were taken
  std::size_t parts_left = 0;   ///< taken, and not ended
  std::size_t blocked_by = 0;   ///< earlier operations that overlap it
  VolumeOperation kind = VolumeOperation::kRead;
  bool swaps = false;  ///< an atomic: compare_swap()
  bool failed = false;
  std::chrono::steady_clock::time_point until{};
  Target into{std::span<std::byte>{}};
  Source from{std::span<const std::byte>{}};
  std::uint64_t expected = 0;
  std::uint64_t operand = 0;  ///< the desired value, or what is added
  std::uint64_t old_value = 0;
  Error error{Code::kInternal};  ///< only if it failed

  /// Whether the order of the two can be noticed.
  [[nodiscard]] bool conflicts_with(const MirrorQueueEntry& other) const noexcept {
    if (kind == VolumeOperation::kRead && other.kind == VolumeOperation::kRead) return false;
    return offset_bytes < other.offset_bytes + other.length_bytes &&
           other.offset_bytes < offset_bytes + length_bytes;
  }
  /// Of several failures the first is kept, but one whose effect is unknown hides the others.
  void fail(const Error& why) noexcept {
    if (failed && (why.code() != Code::kIndeterminate || error.code() == Code::kIndeterminate))
      return;
    failed = true;
    error = why;
  }
};

}  // namespace remora::volume::detail
