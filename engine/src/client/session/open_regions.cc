#include "client/session/open_regions.h"

#include <utility>

#include <remora/assert.h>

namespace remora::detail {

OpenRegions::~OpenRegions() {
  const MutexLock lock{mutex_};
  REMORA_ASSERT(regions_.empty(), "each grant keeps its session");
}

void OpenRegions::add(std::uint64_t grant_id, Region region) {
  const MutexLock lock{mutex_};
  regions_.insert_or_assign(grant_id, std::move(region));
}

void OpenRegions::remove(std::uint64_t grant_id) noexcept {
  const MutexLock lock{mutex_};
  regions_.erase(grant_id);
}

std::vector<OpenRegions::Region> OpenRegions::all() const {
  const MutexLock lock{mutex_};
  std::vector<Region> all;
  all.reserve(regions_.size());
  for (const auto& [grant_id, region] : regions_) all.push_back(region);
  return all;
}

}  // namespace remora::detail
