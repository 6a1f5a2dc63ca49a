#pragma once

/// CRC32C (Castagnoli), as iSCSI has it. Source: RFC 3720, appendix B.4.

#include <cstddef>
#include <cstdint>
#include <span>

namespace remora {

/// CRC32C of `bytes`, by the processor's instruction where it has one. `before`: the CRC32C of what
/// stands in front of them, so that crc32c(b, crc32c(a)) is that of a followed by b.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes,
                                   std::uint32_t before = 0) noexcept;

/// The same by tables: what crc32c() does on a processor without the instruction.
[[nodiscard]] std::uint32_t crc32c_software(std::span<const std::byte> bytes,
                                            std::uint32_t before = 0) noexcept;

}  // namespace remora
