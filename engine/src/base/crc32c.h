#pragma once

/// CRC32C (Castagnoli), as in iSCSI. Source: RFC 3720, appendix B.4.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace remora {

#if defined(__x86_64__)
namespace detail {
/// Whether the processor has the instruction. False, too, while static objects are made: crc32c()
/// then gives the same sums.
inline const bool crc32_instruction = __builtin_cpu_supports("sse4.2") != 0;
}  // namespace detail
#endif

/// CRC32C of `bytes`, by the processor's instruction if it has one. `before`: the CRC32C of the
/// bytes in front of them, so that crc32c(b, crc32c(a)) is the CRC32C of a followed by b.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes,
                                   std::uint32_t before = 0) noexcept;

/// As crc32c(), for a number of bytes that the compiler knows: for headers, where a call would cost
/// more than the sum itself.
template <std::size_t kBytes>
[[nodiscard]] inline std::uint32_t crc32c_of(const std::byte* at) noexcept {
  static_assert(kBytes % 4 == 0);
#if defined(__x86_64__)
  if (detail::crc32_instruction) [[likely]] {
    // Not the compiler's builtin: it exists only in functions that are compiled for such
    // processors.
    std::uint64_t crc = UINT32_MAX;
    std::size_t done = 0;
    for (std::uint64_t word = 0; done + sizeof word <= kBytes; done += sizeof word) {
      std::memcpy(&word, at + done, sizeof word);
      asm("crc32q %1, %0" : "+r"(crc) : "rm"(word));
    }
    auto narrow = static_cast<std::uint32_t>(crc);
    if constexpr (kBytes % 8 != 0) {
      std::uint32_t word = 0;
      std::memcpy(&word, at + done, sizeof word);
      asm("crc32l %1, %0" : "+r"(narrow) : "rm"(word));
    }
    return ~narrow;
  }
#endif
  return crc32c({at, kBytes});
}

/// As crc32c(), by tables, for processors without the instruction.
[[nodiscard]] std::uint32_t crc32c_software(std::span<const std::byte> bytes,
                                            std::uint32_t before = 0) noexcept;

}  // namespace remora
