#include "server/memory/region_memory.h"

#include <algorithm>
#include <utility>

#include <remora/assert.h>

#include "server/memory/orphaned_mappings.h"
#include "server/memory/pool.h"

namespace remora::detail {

RegionMemory::RegionMemory(std::shared_ptr<Pool> pool, std::uint64_t size_bytes, Shares shares,
                           std::unique_ptr<SharedMemory> own)
    : pool_{std::move(pool)},
      size_bytes_{size_bytes},
      shares_{std::move(shares)},
      own_{std::move(own)} {
  if (own_ != nullptr) {
    stretches_.push_back({own_->bytes().data(), size_bytes_});
    return;
  }
  std::uint64_t left = size_bytes_;  // the last extent may be rounded up to a page
  for (const auto& share : shares_)
    for (const PoolExtent& extent : share->extents()) {
      const std::uint64_t length = std::min(left, extent.length_bytes);
      stretches_.push_back({pool_->bytes().data() + extent.offset_bytes, length});
      left -= length;
    }
  REMORA_ASSERT(left == 0, "a region's extents hold all of its bytes");
}

std::uint64_t RegionMemory::pool_bytes() const noexcept {
  std::uint64_t sum_bytes = 0;
  for (const auto& share : shares_) sum_bytes += share->length_bytes();
  return sum_bytes;
}

RegionMemory::~RegionMemory() {
  if (own_ == nullptr) return;
  UniqueFd again = OrphanedMappings::open_again(own_->fd());
  own_.reset();
  pool_->follow_orphaned(std::move(again), size_bytes_);
  for (const auto& share : shares_) share->mark_punched();
}

}  // namespace remora::detail
