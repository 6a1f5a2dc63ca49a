#pragma once

/// The tags that a volume's queue gives to the queues of its lanes.

#include <cstdint>

namespace remora::volume::detail {

/// The tag of an operation in the queue of a lane.
///
/// | bits | |
/// |---|---|
/// | 0…30 | index of the entry |
/// | 31 | an atomic |
/// | 32…62 | group of the part |
/// | 63 | a part |
struct VolumeLaneTag {
  static constexpr std::uint64_t kAtomic = std::uint64_t{1} << 31U;
  static constexpr std::uint64_t kPart = std::uint64_t{1} << 63U;

  static constexpr std::uint64_t of_part(std::uint64_t index, std::uint32_t group) noexcept {
    return kPart | std::uint64_t{group} << 32U | index;
  }
  /// Whether the operation is neither an atomic nor a part.
  static constexpr bool is_transfer(std::uint64_t tag) noexcept { return tag < kAtomic; }
  static constexpr bool is_part(std::uint64_t tag) noexcept { return tag >= kPart; }
  static constexpr std::uint64_t index(std::uint64_t tag) noexcept { return tag & (kAtomic - 1); }
  /// Of a part.
  static constexpr std::uint32_t group(std::uint64_t tag) noexcept {
    return static_cast<std::uint32_t>((tag & ~kPart) >> 32U);
  }
};

}  // namespace remora::volume::detail
