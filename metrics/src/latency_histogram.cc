#include <algorithm>
#include <cmath>

#include <remora/metrics/latency_histogram.h>

namespace remora::metrics {

void LatencyHistogram::merge(const LatencyHistogram& other) noexcept {
  for (std::size_t slot = 0; slot < Buckets::kCount; ++slot) slots_[slot] += other.slots_[slot];
  count_ += other.count_;
  sum_ += other.sum_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

std::uint64_t LatencyHistogram::percentile(double percent) const noexcept {
  if (count_ == 0) return 0;
  const double share = std::isnan(percent) ? 0.0 : std::clamp(percent, 0.0, 100.0) / 100.0;
  // 99.9 % of 1,000 must be the 999th: the product may be a rounding error above it.
  const double exact = share * static_cast<double>(count_);
  const double wanted = std::max(1.0, std::ceil(exact - exact * 1e-12));
  std::uint64_t seen = 0;
  for (std::size_t rank = 0; rank < Buckets::kCount; ++rank) {
    seen += count_at_rank(rank);
    if (static_cast<double>(seen) >= wanted)
      return std::clamp(Buckets::upper_of_rank(rank), min(), max_);
  }
  return max_;
}

std::uint64_t LatencyHistogram::count_up_to(std::uint64_t bound) const noexcept {
  std::uint64_t seen = 0;
  const std::size_t last = Buckets::rank(bound);
  for (std::size_t rank = 0; rank <= last; ++rank) seen += count_at_rank(rank);
  return seen;
}

}  // namespace remora::metrics
