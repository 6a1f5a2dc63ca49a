#pragma once

/// Big-endian integers in byte arrays. Internal.

#include <cstddef>
#include <cstdint>
#include <span>

namespace remora::verbs::detail {

template <typename Integer>
void store_big(std::byte* to, Integer value) noexcept {
  for (std::size_t i = sizeof(Integer); i-- > 0;) {
    to[i] = static_cast<std::byte>(value & 0xff);
    value = static_cast<Integer>(static_cast<std::uint64_t>(value) >> 8);
  }
}

template <typename Integer>
[[nodiscard]] Integer load_big(const std::byte* from) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i)
    value = value << 8 | std::to_integer<std::uint64_t>(from[i]);
  return static_cast<Integer>(value);
}

}  // namespace remora::verbs::detail
