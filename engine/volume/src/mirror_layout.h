#pragma once

/// Where header, intent bitmap and data are in the region of a mirror's member.
///
/// | bytes | what |
/// |---|---|
/// | 0 to 4 KiB | the header (member_header.h); zeroes until a writer has adopted the group |
/// | 4 KiB to the data | the bitmap, in whole blocks of 4 KiB: bit z % 64 of word z / 64 is zone z
/// | | from mirror_data_offset() on | the bytes of the group |

#include <cstdint>

namespace remora::volume::detail {

/// The unit of the bitmap, of repair and of rebuilding.
inline constexpr std::uint64_t kZoneBytes = std::uint64_t{1} << 20U;
inline constexpr std::uint64_t kMirrorBlockBytes = 4096;
inline constexpr std::uint64_t kBitmapOffset = kMirrorBlockBytes;
inline constexpr std::uint32_t kZonesOfWord = 64;

/// The last zone may be shorter than the others.
[[nodiscard]] constexpr std::uint32_t zone_count(std::uint64_t group_bytes) noexcept {
  return static_cast<std::uint32_t>((group_bytes + kZoneBytes - 1) / kZoneBytes);
}
[[nodiscard]] constexpr std::uint32_t bitmap_words(std::uint64_t group_bytes) noexcept {
  return (zone_count(group_bytes) + kZonesOfWord - 1) / kZonesOfWord;
}
[[nodiscard]] constexpr std::uint64_t word_offset(std::uint32_t word) noexcept {
  return kBitmapOffset + word * sizeof(std::uint64_t);
}
[[nodiscard]] constexpr std::uint64_t mirror_data_offset(std::uint64_t group_bytes) noexcept {
  const std::uint64_t bytes = bitmap_words(group_bytes) * sizeof(std::uint64_t);
  return kBitmapOffset + (bytes + kMirrorBlockBytes - 1) / kMirrorBlockBytes * kMirrorBlockBytes;
}
/// The size of a member's region.
[[nodiscard]] constexpr std::uint64_t mirror_region_bytes(std::uint64_t group_bytes) noexcept {
  return mirror_data_offset(group_bytes) + group_bytes;
}

}  // namespace remora::volume::detail
