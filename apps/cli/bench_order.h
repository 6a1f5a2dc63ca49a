#pragma once

/// The order in which a worker of `remora bench` goes over its blocks.

#include <cstdint>

namespace remora::apps {

/// Words and blocks drawn by SplitMix64. The same seed and number give the same order; the orders
/// of neighbouring seeds or numbers are independent. For one thread.
class BenchOrder {
 public:
  /// `number`: that of the worker. Sequential workers begin an eighth of the blocks apart.
  BenchOrder(std::uint64_t seed, std::uint32_t number, std::uint64_t block_count,
             bool sequential) noexcept
      : state_{scrambled(seed + scrambled(std::uint64_t{number} + 1))},
        sequence_{block_count / 8 * number},
        block_count_{block_count},
        sequential_{sequential} {}

  /// Uniformly distributed over all 64-bit words.
  std::uint64_t next_word() noexcept { return scrambled(state_ += 0x9e3779b97f4a7c15ULL); }

  /// A number below `block_count`.
  std::uint64_t next_block() noexcept {
    if (sequential_) return sequence_++ % block_count_;
    // Reduces the word below the bound by a multiplication instead of a division.
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(next_word()) * block_count_) >> 64U);
  }

  /// Another word after each block.
  [[nodiscard]] std::uint64_t mark() const noexcept { return state_ + sequence_; }

 private:
  /// Each bit of the word changes about half of the bits of the result.
  static constexpr std::uint64_t scrambled(std::uint64_t word) noexcept {
    word = (word ^ (word >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    word = (word ^ (word >> 27U)) * 0x94d049bb133111ebULL;
    return word ^ (word >> 31U);
  }

  std::uint64_t state_;
  std::uint64_t sequence_;
  std::uint64_t block_count_;
  bool sequential_;
};

}  // namespace remora::apps
