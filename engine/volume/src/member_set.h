#pragma once

/// A set of the members of one group, by their slots.

#include <bit>
#include <cstddef>
#include <cstdint>

#include <remora/volume/records.h>

namespace remora::volume::detail {

/// A full group and one syncing member.
inline constexpr std::size_t kMemberSlots = kCopiesMax + 1;

/// A value.
class MemberSet {
 public:
  constexpr MemberSet() noexcept = default;
  [[nodiscard]] static constexpr MemberSet of(std::size_t slot) noexcept {
    MemberSet set;
    set.bits_ = static_cast<std::uint16_t>(1U << slot);
    return set;
  }
  [[nodiscard]] static constexpr MemberSet from_bits(std::uint16_t bits) noexcept {
    MemberSet set;
    set.bits_ = bits;
    return set;
  }

  [[nodiscard]] constexpr std::uint16_t bits() const noexcept { return bits_; }
  [[nodiscard]] constexpr bool empty() const noexcept { return bits_ == 0; }
  [[nodiscard]] constexpr std::size_t size() const noexcept {
    return static_cast<std::size_t>(std::popcount(bits_));
  }
  [[nodiscard]] constexpr bool has(std::size_t slot) const noexcept {
    return (bits_ >> slot & 1U) != 0;
  }
  /// The lowest slot in it. Only when !empty().
  [[nodiscard]] constexpr std::size_t first() const noexcept {
    return static_cast<std::size_t>(std::countr_zero(bits_));
  }
  [[nodiscard]] constexpr MemberSet with(MemberSet other) const noexcept {
    return from_bits(static_cast<std::uint16_t>(bits_ | other.bits_));
  }
  [[nodiscard]] constexpr MemberSet without(MemberSet other) const noexcept {
    return from_bits(static_cast<std::uint16_t>(bits_ & ~other.bits_));
  }
  [[nodiscard]] constexpr MemberSet both(MemberSet other) const noexcept {
    return from_bits(static_cast<std::uint16_t>(bits_ & other.bits_));
  }
  /// Calls `each` with each slot.
  template <typename Each>
  constexpr void for_each(const Each& each) const {
    for (MemberSet left = *this; !left.empty(); left = left.without(of(left.first())))
      each(left.first());
  }
  friend constexpr bool operator==(MemberSet, MemberSet) noexcept = default;

 private:
  std::uint16_t bits_ = 0;
};

}  // namespace remora::volume::detail
