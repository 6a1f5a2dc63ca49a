#pragma once

#include <cstdint>
#include <span>

#include <remora/metrics/latency_histogram.h>

#include "block.h"

namespace remora::metrics {

/// Fills a LatencyHistogram from cells.
class HistogramReader {
 public:
  static LatencyHistogram read(std::span<const Block> blocks, std::uint32_t cell);
};

}  // namespace remora::metrics
