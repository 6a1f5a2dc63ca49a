#pragma once

/// Numbers as bytes for other machines: little-endian, independent of the processor's byte order.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace remora {

template <typename Number>
[[nodiscard]] Number little_endian(Number number) noexcept {
  if constexpr (std::endian::native == std::endian::little) return number;
  if constexpr (sizeof number == 8) return __builtin_bswap64(number);
  return static_cast<Number>(__builtin_bswap32(static_cast<std::uint32_t>(number)));
}

template <typename Number>
void put_little_endian(std::byte* at, Number number) noexcept {
  number = little_endian(number);
  std::memcpy(at, &number, sizeof number);
}

template <typename Number>
[[nodiscard]] Number get_little_endian(const std::byte* at) noexcept {
  Number number = 0;
  std::memcpy(&number, at, sizeof number);
  return little_endian(number);
}

}  // namespace remora
