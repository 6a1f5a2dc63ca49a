#include "server/memory/region_entry.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <remora/assert.h>

#include "server/memory/pool.h"

namespace remora::detail {

namespace {

/// Leaves only the first `bytes` of all extents together.
void keep_first(std::vector<PoolExtent>& extents, std::uint64_t bytes) {
  for (PoolExtent& extent : extents) {
    extent.length_bytes = std::min(extent.length_bytes, bytes);
    bytes -= extent.length_bytes;
  }
  std::erase_if(extents, [](const PoolExtent& extent) { return extent.length_bytes == 0; });
}

}  // namespace

RegionEntry::RegionEntry(RegionInfo info, std::shared_ptr<RegionMemory> memory,
                         std::shared_ptr<OwnedBytes> owned, std::uint64_t session_id)
    : info_{std::move(info)},
      session_id_{session_id},
      owned_{std::move(owned)},
      memory_{std::move(memory)},
      epoch_{info_.epoch} {
  count_owned(0, memory_->pool_bytes());
}

RegionEntry::~RegionEntry() {
  REMORA_ASSERT(open_count_.load() == 0, "a region goes when no session has it open");
  count_owned(memory_->pool_bytes(), 0);
}

RegionInfo RegionEntry::info() const {
  const MutexLock lock{memory_mutex_};
  return info_now();
}

RegionInfo RegionEntry::info_now() const {
  RegionInfo info = info_;
  info.size_bytes = memory_->size_bytes();
  info.extent_count = memory_->stretches().size();
  info.epoch = epoch_.load();
  info.open_count = open_count_.load();
  return info;
}

JournaledRegion RegionEntry::journaled() const {
  const MutexLock lock{memory_mutex_};
  return journaled_now();
}

JournaledRegion RegionEntry::journaled_now() const {
  JournaledRegion region{.info = info_now(), .session_id = session_id_};
  for (const auto& share : memory_->shares())
    region.extents.insert(region.extents.end(), share->extents().begin(), share->extents().end());
  if (memory_->shareable()) {
    region.memory_fd = memory_->shareable_fd();
    region.memory = memory_->stretches().front().address;
  }
  return region;
}

std::shared_ptr<RegionMemory> RegionEntry::memory() const {
  const MutexLock lock{memory_mutex_};
  return memory_;
}

void RegionEntry::count_close() noexcept {
  idle_since_.store(Clock::now().time_since_epoch().count());
  const std::uint64_t before = open_count_.fetch_sub(1);
  REMORA_ASSERT(before > 0, "a region is closed as often as it was opened");
}

bool RegionEntry::expired() const noexcept {
  if (info_.lifetime != Lifetime::kTtl || open_count_.load() != 0) return false;
  const Clock::time_point since{Clock::duration{idle_since_.load()}};
  return Clock::now() - since >= info_.ttl;
}

void RegionEntry::hold(Deadline until) noexcept {
  held_until_.store(until.time_since_epoch().count());
  idle_since_.store(until.time_since_epoch().count());  // its ttl begins at that time
}

void RegionEntry::hold_longer(Deadline until) noexcept {
  const Clock::rep before = held_until_.load();
  if (before != 0 && before < until.time_since_epoch().count()) hold(until);
}

bool RegionEntry::held() const noexcept {
  return Clock::now() < Clock::time_point{Clock::duration{held_until_.load()}};
}

void RegionEntry::raise_epoch(std::uint64_t epoch) noexcept {
  const std::uint64_t before = epoch_.exchange(epoch);
  REMORA_ASSERT(before < epoch, "the epoch of a region only rises");
}

void RegionEntry::set_memory(std::shared_ptr<RegionMemory> memory) {
  const MutexLock lock{memory_mutex_};
  count_owned(memory_->pool_bytes(), memory->pool_bytes());
  memory_ = std::move(memory);
}

Status RegionEntry::check_shrink() const {
  const MutexLock lock{memory_mutex_};
  return Pool::check_shrink(memory_);
}

Status RegionEntry::shrink(Pool& pool, std::uint64_t size_bytes, const Record& record) {
  std::shared_ptr<RegionMemory> before;  // released after the lock
  const MutexLock lock{memory_mutex_};
  if (const Status may = Pool::check_shrink(memory_); !may)
    return may.error().with_subject(name() + ": a view has it open");
  JournaledRegion after = journaled_now();
  after.info.size_bytes = size_bytes;
  keep_first(after.extents, pool.whole_pages(size_bytes));
  if (!record(after)) return Error{Code::kClosed, "resize"}.with_subject(name());
  const std::uint64_t before_bytes = memory_->pool_bytes();  // shrinking changes this number
  auto shrunk = pool.shrink(memory_, size_bytes);
  if (!shrunk) return shrunk.error();
  count_owned(before_bytes, (*shrunk)->pool_bytes());
  before = std::exchange(memory_, std::move(*shrunk));
  return {};
}

void RegionEntry::count_owned(std::uint64_t before_bytes, std::uint64_t now_bytes) const {
  owned_->add(info_.owner,
              static_cast<std::int64_t>(now_bytes) - static_cast<std::int64_t>(before_bytes));
}

}  // namespace remora::detail
