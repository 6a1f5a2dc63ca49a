#include "histogram_reader.h"

#include <cstddef>

namespace remora::metrics {

LatencyHistogram HistogramReader::read(std::span<const Block> blocks, std::uint32_t cell) {
  LatencyHistogram result;
  for (const Block& block : blocks) {
    result.sum_ += block.load(cell);
    for (std::size_t slot = 0; slot < Buckets::kCount; ++slot)
      result.slots_[slot] += block.load(cell + 1 + slot);
  }
  for (std::size_t rank = 0; rank < Buckets::kCount; ++rank) {
    const std::uint64_t count = result.count_at_rank(rank);
    if (count == 0) continue;
    // The smallest and the largest value of the bucket.
    if (result.count_ == 0) result.min_ = rank == 0 ? 0 : Buckets::upper_of_rank(rank - 1) + 1;
    result.max_ = Buckets::upper_of_rank(rank);
    result.count_ += count;
  }
  return result;
}

}  // namespace remora::metrics
