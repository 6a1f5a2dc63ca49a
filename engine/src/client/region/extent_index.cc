#include "client/region/extent_index.h"

#include <algorithm>
#include <bit>

namespace remora::detail {

ExtentIndex::ExtentIndex(std::span<const transport::WireExtent> extents) {
  if (extents.size() < 2) return;
  const std::uint64_t size_bytes = extents.back().start_bytes + extents.back().length_bytes;
  // Each extent then begins where a part begins.
  shift_ = static_cast<unsigned>(std::countr_zero(extents[1].start_bytes));
  for (const transport::WireExtent& extent : extents.subspan(1))
    shift_ = std::min(shift_, static_cast<unsigned>(std::countr_zero(extent.start_bytes)));
  while (((size_bytes - 1) >> shift_) >= kMaxParts) ++shift_;
  const std::uint64_t count = ((size_bytes - 1) >> shift_) + 1;
  parts_.reserve(count);
  auto extent = extents.begin();
  for (std::uint64_t i = 0; i < count; ++i) {
    while ((i << shift_) - extent->start_bytes >= extent->length_bytes) ++extent;
    parts_.push_back({.end_bytes = extent->start_bytes + extent->length_bytes,
                      .base_address = extent->remote_address - extent->start_bytes,
                      .remote_key = extent->remote_key});
  }
}

}  // namespace remora::detail
