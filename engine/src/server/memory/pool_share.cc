#include "server/memory/pool_share.h"

#include <algorithm>
#include <utility>

#include "server/memory/pool.h"

namespace remora::detail {

PoolShare::PoolShare(std::shared_ptr<Pool> pool, std::vector<PoolExtent> extents) noexcept
    : pool_{std::move(pool)}, extents_{std::move(extents)} {}

PoolShare::~PoolShare() { pool_->recycle(std::move(extents_), punched_); }

std::uint64_t PoolShare::length_bytes() const noexcept {
  std::uint64_t sum_bytes = 0;
  for (const PoolExtent& extent : extents_) sum_bytes += extent.length_bytes;
  return sum_bytes;
}

void PoolShare::cut(std::uint64_t keep_bytes) {
  std::vector<PoolExtent> kept;
  std::vector<PoolExtent> behind;
  for (const PoolExtent& extent : extents_) {
    const std::uint64_t length = std::min(keep_bytes, extent.length_bytes);
    if (length > 0) kept.push_back({extent.offset_bytes, length});
    if (length < extent.length_bytes)
      behind.push_back({extent.offset_bytes + length, extent.length_bytes - length});
    keep_bytes -= length;
  }
  extents_ = std::move(kept);
  pool_->recycle(std::move(behind), false);
}

}  // namespace remora::detail
