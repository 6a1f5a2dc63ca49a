#pragma once

/// Seeded test data: the same seed gives the same bytes on every machine, and a failure prints it.

#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <span>
#include <vector>

namespace remora::test {

/// A small generator of uniform 64-bit numbers (splitmix64). Not for secrets.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_{seed} {}
  std::uint64_t next() noexcept;
  /// Uniform in [0, bound); bound > 0.
  std::uint64_t below(std::uint64_t bound) noexcept { return next() % bound; }

 private:
  std::uint64_t state_;
};

/// Fills `bytes` with noise made from `seed`.
void fill(std::span<std::byte> bytes, std::uint64_t seed) noexcept;
/// `size` bytes of noise.
std::vector<std::byte> noise(std::size_t size, std::uint64_t seed);

/// Equal, or a failure that names the first byte that differs and how many do.
::testing::AssertionResult same_bytes(std::span<const std::byte> actual,
                                      std::span<const std::byte> expected);

/// CRC-32 (polynomial 0xedb88320, as in zlib).
std::uint32_t crc32(std::span<const std::byte> bytes) noexcept;

/// A self-describing block, at least kStampBytes long.
///
/// | bytes | meaning |
/// |---|---|
/// | 0..7 | sequence number of the write that made it |
/// | 8..15 | byte offset at which it belongs |
/// | 16..19 | CRC-32 of all other bytes of the block |
/// | 20.. | noise made from both numbers |
void stamp(std::span<std::byte> block, std::uint64_t sequence, std::uint64_t offset) noexcept;
inline constexpr std::size_t kStampBytes = 64;

/// The block is intact, belongs at `offset` and was made by write `sequence`.
::testing::AssertionResult stamped(std::span<const std::byte> block, std::uint64_t sequence,
                                   std::uint64_t offset);

}  // namespace remora::test
