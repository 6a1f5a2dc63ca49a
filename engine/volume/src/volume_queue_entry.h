#pragma once

/// The operations of a volume's queue.

#include <chrono>
#include <cstdint>
#include <span>

#include <remora/engine/buffer.h>

namespace remora::volume::detail {

enum class VolumeOperation : std::uint8_t { kRead, kWrite, kZeroes, kFlush, kAtomic };

/// One operation. Aligned, so that its address is one shift away from its index.
struct alignas(64) VolumeQueueEntry {
  VolumeQueueEntry* next = nullptr;
  std::uint64_t tag = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
  // An operation of one part does not set these, and changes them only if it fails. The queue gives
  // them these values back when it releases the entry.
  std::uint32_t parts_left = 1;  ///< taken by queues of lanes, and not ended
  bool failed = false;
  bool all_posted = true;   ///< no further part follows
  std::uint64_t index = 0;  ///< in the table of the queue; does not change
  // Of an operation in parts:
  VolumeOperation kind = VolumeOperation::kRead;
  std::uint64_t posted = 0;                       ///< bytes; of a flush: lanes
  std::chrono::steady_clock::time_point until{};  ///< no part is posted after that
  Target into{std::span<std::byte>{}};
  Source from{std::span<const std::byte>{}};
};

}  // namespace remora::volume::detail
