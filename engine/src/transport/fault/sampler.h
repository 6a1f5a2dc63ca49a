#pragma once

#include <cstdint>

namespace remora::detail {

/// Random numbers that depend on a seed and on the place where they are used. Source: Steele, Lea
/// and Flood, "Fast splittable pseudorandom number generators", 2014 (splitmix64).
class FaultSampler {
 public:
  enum class Place : std::uint8_t { kConnect, kLane, kOrder, kAnswer };
  FaultSampler(std::uint64_t seed, Place place, std::uint64_t ordinal) noexcept
      : state_{mixed(mixed(seed) + mixed(ordinal * 4 + static_cast<std::uint64_t>(place)))} {}

  std::uint64_t next() noexcept { return mixed(state_ += 0x9e3779b97f4a7c15U); }
  /// Draws one number, whatever the chance is.
  bool draw(double chance) noexcept {
    return static_cast<double>(next() >> 11U) * 0x1.0p-53 < chance;
  }

 private:
  static std::uint64_t mixed(std::uint64_t word) noexcept {
    word = (word ^ (word >> 30U)) * 0xbf58476d1ce4e5b9U;
    word = (word ^ (word >> 27U)) * 0x94d049bb133111ebU;
    return word ^ (word >> 31U);
  }
  std::uint64_t state_;
};

}  // namespace remora::detail
