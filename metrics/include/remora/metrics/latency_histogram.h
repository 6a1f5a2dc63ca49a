#pragma once

/// Log-linear histograms of integers: the bucket arithmetic shared by everything in metrics/, and a
/// stand-alone histogram for one thread (`remora bench`, tests, tools).

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace remora::metrics {

/// The buckets. Each power of two is divided into 16 buckets of equal width, so that a bucket's
/// upper edge is at most 6.25 % above any value in it; values up to 32 have buckets of their own.
///
/// Buckets include their upper edge and not their lower one, as Prometheus' `le` does: 4096 lies in
/// the bucket that ends at 4096, so powers of two (block sizes, chain lengths) are counted exactly.
///
/// A *slot* is a bucket's place in memory and a *rank* its place in ascending order. They differ in
/// that zero, whose predecessor wraps around, lives in the last slot: this saves the data path a
/// branch. Values above kMaxValue share that slot, so a negative difference of two clocks, cast to
/// unsigned, counts as zero.
struct Buckets {
  static constexpr unsigned kSubBits = 4;
  /// The number of slots of a histogram.
  static constexpr std::size_t kCount = (64 - kSubBits + 1) << kSubBits;
  /// Upper bound of the relative error of a bucket's upper edge.
  static constexpr double kRelativeErrorMax = 1.0 / (1U << kSubBits);
  /// The largest value that can be distinguished from zero.
  static constexpr std::uint64_t kMaxValue = std::uint64_t{31} << 59;

  /// The slot in which `value` is counted.
  [[nodiscard]] static constexpr std::size_t slot(std::uint64_t value) noexcept {
    const std::uint64_t below = value - 1;
    const unsigned exponent =
        63U ^ static_cast<unsigned>(std::countl_zero(below | (std::uint64_t{1} << kSubBits)));
    const unsigned shift = exponent - kSubBits;
    return static_cast<std::size_t>((below >> shift) + (std::uint64_t{shift} << kSubBits));
  }
  /// The slot of the `rank`-th smallest bucket; rank < kCount.
  [[nodiscard]] static constexpr std::size_t slot_of_rank(std::size_t rank) noexcept {
    return rank == 0 ? kCount - 1 : rank - 1;
  }
  /// The largest value of the `rank`-th smallest bucket; rank < kCount. Rank 0 holds zero alone.
  [[nodiscard]] static constexpr std::uint64_t upper_of_rank(std::size_t rank) noexcept {
    if (rank <= (std::size_t{2} << kSubBits)) return rank;
    const std::size_t index = rank - 1;
    const auto shift = static_cast<unsigned>((index >> kSubBits) - 1);
    const std::uint64_t sub = (index & ((1U << kSubBits) - 1)) + (1U << kSubBits) + 1;
    return sub << shift;
  }
  /// The rank of the bucket that holds `value`.
  [[nodiscard]] static constexpr std::size_t rank(std::uint64_t value) noexcept {
    const std::size_t at = slot(value);
    return at == kCount - 1 ? 0 : at + 1;
  }
};

/// A histogram of integers (nanoseconds, bytes, counts) with percentiles within 6.25 %.
///
/// About 8 KiB, no allocation. Record in one histogram a thread and merge: not thread-safe,
/// distinct objects may be used from distinct threads. Percentiles are never too small: they are
/// the upper edge of the bucket that holds the true value, limited to the largest value recorded.
class LatencyHistogram {
 public:
  /// Counts `value` once.
  void record(std::uint64_t value) noexcept { record_n(value, 1); }
  /// Counts `value` `times` times; nothing when `times` is 0.
  void record_n(std::uint64_t value, std::uint64_t times) noexcept {
    if (times == 0) return;
    if (value > Buckets::kMaxValue) value = 0;
    slots_[Buckets::slot(value)] += times;
    count_ += times;
    sum_ += value * times;
    if (value < min_) min_ = value;
    if (value > max_) max_ = value;
  }
  /// Adds everything `other` has recorded.
  void merge(const LatencyHistogram& other) noexcept;
  /// Removes all values.
  void reset() noexcept { *this = {}; }

  /// Number of recorded values.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// Sum of all values; wraps beyond 2^64 (584 years of nanoseconds).
  [[nodiscard]] std::uint64_t sum() const noexcept { return sum_; }
  /// 0 when empty.
  [[nodiscard]] double mean() const noexcept {
    return count_ == 0 ? 0.0 : static_cast<double>(sum_) / static_cast<double>(count_);
  }
  /// Smallest value recorded, 0 when empty.
  [[nodiscard]] std::uint64_t min() const noexcept { return count_ == 0 ? 0 : min_; }
  /// Largest value recorded, 0 when empty.
  [[nodiscard]] std::uint64_t max() const noexcept { return max_; }
  /// The value that `percent` % of all recorded values do not exceed: nearest rank, `percent`
  /// limited to [0, 100]; 0 when empty. At least the true value, at most 6.25 % above it.
  [[nodiscard]] std::uint64_t percentile(double percent) const noexcept;
  /// Values recorded in the buckets up to and including the one that holds `bound`.
  [[nodiscard]] std::uint64_t count_up_to(std::uint64_t bound) const noexcept;
  /// Values in the bucket of that rank (see Buckets); rank < Buckets::kCount.
  [[nodiscard]] std::uint64_t count_at_rank(std::size_t rank) const noexcept {
    return slots_[Buckets::slot_of_rank(rank)];
  }

 private:
  friend class HistogramReader;  ///< fills a histogram from a registry's cells

  std::array<std::uint64_t, Buckets::kCount> slots_{};
  std::uint64_t count_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t min_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t max_ = 0;
};

}  // namespace remora::metrics
