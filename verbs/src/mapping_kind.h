#pragma once

/// The kind of mapping at an address of this process. Internal.

#include <cstdint>

namespace remora::verbs::detail {

/// Whether [begin, end) is all private anonymous memory, without a hole. `maps` is /proc/self/maps,
/// opened. Does not allocate. Takes microseconds if the kernel answers by ioctl (6.11), otherwise
/// it reads the list up to `end`. `from` and `to`, if given, are limited to the mappings that hold
/// the first and the last byte.
[[nodiscard]] bool is_private_anonymous(int maps, std::uintptr_t begin, std::uintptr_t end,
                                        std::uintptr_t* from = nullptr,
                                        std::uintptr_t* to = nullptr) noexcept;
/// The same for older kernels.
[[nodiscard]] bool is_private_anonymous_by_text(std::uintptr_t begin, std::uintptr_t end,
                                                std::uintptr_t* from = nullptr,
                                                std::uintptr_t* to = nullptr) noexcept;

}  // namespace remora::verbs::detail
