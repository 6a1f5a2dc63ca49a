#pragma once

/// CRC32C (Castagnoli), as iSCSI has it. Source: RFC 3720, appendix B.4.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace remora {

#if defined(__x86_64__)
namespace detail {
/// False also before it has been asked for, while static objects are made.
inline const bool crc32_instruction = __builtin_cpu_supports("sse4.2") != 0;
}  // namespace detail
#endif

/// CRC32C of `bytes`, by the processor's instruction where it has one. `before`: the CRC32C of what
/// stands in front of them, so that crc32c(b, crc32c(a)) is that of a followed by b.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes,
                                   std::uint32_t before = 0) noexcept;

/// The same of so many bytes from `at` on, a number known to the compiler: for headers, where a
/// call would cost more than the sum.
template <std::size_t kBytes>
[[nodiscard]] inline std::uint32_t crc32c_of(const std::byte* at) noexcept {
  static_assert(kBytes % 4 == 0);
#if defined(__x86_64__)
  if (detail::crc32_instruction) [[likely]] {
    // Not the builtin: it is to be had in functions alone that are for such processors as a whole.
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

/// The same by tables: what crc32c() does on a processor without the instruction.
[[nodiscard]] std::uint32_t crc32c_software(std::span<const std::byte> bytes,
                                            std::uint32_t before = 0) noexcept;

}  // namespace remora
