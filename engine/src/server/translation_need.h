#pragma once

/// The memory of an RDMA device that registered memory needs, beside locked memory.

#include <cstdint>

namespace remora::detail {

/// The bytes of translations that a device keeps for this much registered memory: 8 for each page.
[[nodiscard]] constexpr std::uint64_t translation_bytes(std::uint64_t registered_bytes,
                                                        std::uint64_t page_bytes) noexcept {
  constexpr std::uint64_t kEntryBytes = 8;
  return (registered_bytes + page_bytes - 1) / page_bytes * kEntryBytes;
}

}  // namespace remora::detail
