#pragma once

/// Guid: a 64-bit identifier that begins with its vendor's.
///
/// Thread safety: a value.

#include <cstdint>
#include <ostream>
#include <string>

namespace remora::verbs {

/// See the top of this file.
struct Guid {
  std::uint64_t value = 0;  ///< host byte order

  /// Organizationally unique identifier: the first 24 bits, which name the manufacturer.
  [[nodiscard]] constexpr std::uint32_t oui() const noexcept {
    return static_cast<std::uint32_t>(value >> 40);
  }
  /// True: the device has none.
  [[nodiscard]] constexpr bool is_zero() const noexcept { return value == 0; }
  /// "5054:00ff:fe12:3456". Allocates.
  [[nodiscard]] std::string to_string() const;

  friend constexpr auto operator<=>(const Guid&, const Guid&) = default;
};
/// As to_string().
std::ostream& operator<<(std::ostream& out, const Guid& guid);

}  // namespace remora::verbs
