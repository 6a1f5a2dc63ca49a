#include "server/memory/catalog.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include <remora/assert.h>

#include "protocol/messages.h"

namespace remora::detail {

namespace {

constexpr std::uint64_t kBlockBytesMin = 64;
constexpr std::uint64_t kMaxBlockBytes = 16U << 20U;

Status check(const RegionSpec& spec) {
  const Error wrong{Code::kInvalidArgument, "create"};
  if (!config::is_region_name(spec.name))
    return wrong.with_subject("name: 1 to 64 of A-Z a-z 0-9 . _ -");
  if (!std::has_single_bit(spec.block_bytes) || spec.block_bytes < kBlockBytesMin ||
      spec.block_bytes > kMaxBlockBytes)
    return wrong.with_subject("block size: a power of two, 64 B to 16 MiB")
        .with_limit(spec.block_bytes, kMaxBlockBytes);
  if (spec.size_bytes == 0 || spec.size_bytes % spec.block_bytes != 0)
    return wrong.with_subject("size: a positive multiple of the block size")
        .with_limit(spec.size_bytes, spec.block_bytes);
  if (spec.rights == Rights::kNone || !includes(Rights::kAll, spec.rights))
    return wrong.with_subject("rights");
  constexpr std::chrono::milliseconds kMinTtl{100};
  constexpr std::chrono::milliseconds kMaxTtl{control::kMaxTtlMs};
  if (spec.lifetime == Lifetime::kTtl ? spec.ttl < kMinTtl || spec.ttl > kMaxTtl
                                      : spec.ttl.count() != 0)
    return wrong.with_subject("ttl: 100 ms to 365 days with the lifetime ttl, none with others");
  return {};
}

Error unknown(std::string_view name) {
  return Error{Code::kUnknownRegion, "region"}.with_subject(name);
}

}  // namespace

Status Catalog::check_quota(std::string_view owner, std::uint64_t quota_bytes,
                            std::uint64_t more_bytes) const {
  if (quota_bytes == 0) return {};
  const std::uint64_t left = quota_bytes - std::min(owned_->of(owner), quota_bytes);
  if (more_bytes <= left) return {};
  return Error{Code::kLimitExceeded, "create"}
      .with_subject("bytes left of the quota of " + std::string{owner})
      .with_limit(more_bytes, left);
}

void Catalog::set_regions_max(std::size_t regions_max) noexcept {
  const MutexLock lock{mutex_};
  regions_max_ = regions_max;
}

Status Catalog::may_add(const std::string& name) const {
  if (regions_.contains(name)) return Error{Code::kAlreadyExists, "create"}.with_subject(name);
  if (regions_.size() >= regions_max_)
    return Error{Code::kLimitExceeded, "regions"}
        .with_subject("limits.regions_max")
        .with_limit(regions_.size() + 1, regions_max_);
  return {};
}

std::vector<JournaledRegion> Catalog::journaled() const {
  std::vector<JournaledRegion> regions;
  regions.reserve(regions_.size());
  for (const auto& [name, entry] : regions_) regions.push_back(entry->journaled());
  return regions;
}

/// Records all regions in the journal; called at each change of a region.
void Catalog::record() noexcept {
  if (journal_ == nullptr) return;
  try {
    (void)journal_->record(journaled(), next_epoch_);
  } catch (const std::bad_alloc&) {
    journal_->record_nothing();
  }
}

void Catalog::hold_all(Deadline until) noexcept {
  const MutexLock lock{mutex_};
  for (const auto& [name, entry] : regions_) entry->hold(until);
}

void Catalog::hold_longer(Deadline until) noexcept {
  const MutexLock lock{mutex_};
  for (const auto& [name, entry] : regions_) entry->hold_longer(until);
}

void Catalog::record_all() {
  const MutexLock lock{mutex_};
  record();
}

void Catalog::restore(std::vector<Restored> regions, std::uint64_t next_epoch) {
  const MutexLock lock{mutex_};
  REMORA_ASSERT(regions_.empty(), "regions are restored before any is created");
  next_epoch_ = next_epoch;
  for (Restored& each : regions) {
    REMORA_ASSERT(each.info.epoch < next_epoch, "the epoch of a region only rises");
    std::string name = each.info.name;
    auto entry = std::make_shared<RegionEntry>(std::move(each.info), std::move(each.memory), owned_,
                                               each.session_id);
    if (each.moved) entry->set_moved();
    regions_.emplace(std::move(name), std::move(entry));
  }
}

std::vector<std::shared_ptr<RegionEntry>> Catalog::of_session(std::uint64_t session_id) const {
  std::vector<std::shared_ptr<RegionEntry>> found;
  const MutexLock lock{mutex_};
  for (const auto& [name, entry] : regions_)
    if (entry->session_id() == session_id) found.push_back(entry);
  return found;
}

Result<RegionInfo> Catalog::create(const RegionSpec& spec, Deadline deadline,
                                   std::string_view owner, const PopulateSteps& steps,
                                   std::uint64_t session_id) {
  if (auto status = check(spec); !status) return status.error();
  std::uint64_t epoch = 0;
  {
    const MutexLock lock{mutex_};
    if (auto may = may_add(spec.name); !may) return may.error();
    epoch = next_epoch_++;
  }
  // Without the lock, since this may wait for memory that is being zeroed.
  auto memory = pool_->allocate(spec.size_bytes, spec.shm, deadline, steps);
  if (!memory) return memory.error().with_subject(spec.name);
  if (journal_ != nullptr && (*memory)->shareable())
    if (auto kept = journal_->keep(epoch, (*memory)->shareable_fd()); !kept) return kept.error();
  const MutexLock lock{mutex_};
  if (auto may = may_add(spec.name); !may) return may.error();
  RegionInfo info{.name = spec.name,
                  .size_bytes = spec.size_bytes,
                  .block_bytes = spec.block_bytes,
                  .rights = spec.rights,
                  .atomic_domain = spec.atomic_domain,
                  .shm = spec.shm,
                  .epoch = epoch,
                  .incarnation = epoch,
                  .extent_count = (*memory)->stretches().size(),
                  .owner = std::string{owner},
                  .access = spec.access,
                  .lifetime = spec.lifetime,
                  .ttl = spec.ttl};
  const auto added = regions_.emplace(
      spec.name, std::make_shared<RegionEntry>(info, std::move(*memory), owned_, session_id));
  REMORA_ASSERT(added.second, "a region is created where no region has its name");
  record();
  return info;
}

Result<std::shared_ptr<RegionEntry>> Catalog::open(std::string_view name) {
  const MutexLock lock{mutex_};
  const auto found = regions_.find(name);
  if (found == regions_.end()) return unknown(name);
  found->second->count_open();
  return found->second;
}

void Catalog::close(RegionEntry& entry) noexcept { entry.count_close(); }

Result<std::shared_ptr<RegionEntry>> Catalog::find(std::string_view name) const {
  const MutexLock lock{mutex_};
  const auto found = regions_.find(name);
  if (found == regions_.end()) return unknown(name);
  return found->second;
}

bool Catalog::holds(const RegionEntry& entry) const {
  const MutexLock lock{mutex_};
  const auto found = regions_.find(entry.name());
  return found != regions_.end() && found->second.get() == &entry;
}

bool Catalog::retire(const RegionEntry& entry) noexcept {
  std::shared_ptr<RegionEntry> retired;  // releases its memory after the lock
  const MutexLock lock{mutex_};
  const auto found = regions_.find(entry.name());
  if (found == regions_.end() || found->second.get() != &entry) return false;
  retired = std::move(found->second);
  regions_.erase(found);
  record();
  return true;
}

std::vector<std::shared_ptr<RegionEntry>> Catalog::expired() const {
  std::vector<std::shared_ptr<RegionEntry>> found;
  const MutexLock lock{mutex_};
  for (const auto& [name, entry] : regions_)
    if (entry->expired()) found.push_back(entry);
  return found;
}

bool Catalog::expire(const RegionEntry& entry) noexcept {
  std::shared_ptr<RegionEntry> removed;  // releases its memory after the lock
  const MutexLock lock{mutex_};
  const auto found = regions_.find(entry.name());
  if (found == regions_.end() || found->second.get() != &entry || !entry.expired()) return false;
  removed = std::move(found->second);
  regions_.erase(found);
  record();
  return true;
}

Status Catalog::check_size(const RegionEntry& entry, std::uint64_t size_bytes) {
  if (entry.fixed_info().shm)
    return Error{Code::kUnsupported, "resize"}.with_subject(entry.name() +
                                                            ": memory for shm is sealed");
  const std::uint64_t block_bytes = entry.fixed_info().block_bytes;
  if (size_bytes == 0 || size_bytes % block_bytes != 0)
    return Error{Code::kInvalidArgument, "resize"}
        .with_subject("size: a positive multiple of the block size")
        .with_limit(size_bytes, block_bytes);
  return {};
}

Status Catalog::grow(RegionEntry& entry, std::uint64_t size_bytes, Deadline deadline) {
  // Without the lock, since this may wait for memory that is being zeroed.
  auto grown = pool_->grow(*entry.memory(), size_bytes, deadline);
  if (!grown) return grown.error().with_subject(entry.name());
  entry.set_memory(std::move(*grown));
  record_all();
  return {};
}

Status Catalog::check_shrink(const RegionEntry& entry) {
  const Status may = entry.check_shrink();
  return may ? may : may.error().with_subject(entry.name() + ": a view has it open");
}

Status Catalog::shrink(RegionEntry& entry, std::uint64_t size_bytes) {
  const MutexLock lock{mutex_};
  if (journal_ == nullptr)
    return entry.shrink(*pool_, size_bytes, [](const JournaledRegion&) { return true; });
  std::vector<JournaledRegion> regions = journaled();
  const std::uint64_t next_epoch = next_epoch_;
  // The record comes first: the next process must not keep, as the region's, bytes that this
  // process has zeroed.
  return entry.shrink(*pool_, size_bytes, [&](const JournaledRegion& after) {
    for (JournaledRegion& each : regions)
      if (each.info.incarnation == after.info.incarnation) each = after;
    return journal_->record(regions, next_epoch);
  });
}

void Catalog::raise_epoch(RegionEntry& entry) noexcept {
  const MutexLock lock{mutex_};
  entry.raise_epoch(next_epoch_++);
  record();
}

Status Catalog::remove(std::string_view name) {
  std::shared_ptr<RegionEntry> removed;  // releases its memory after the lock
  const MutexLock lock{mutex_};
  const auto found = regions_.find(name);
  if (found == regions_.end()) return unknown(name);
  if (const std::uint64_t open = found->second->open_count(); open > 0)
    return Error{Code::kBusy, "remove"}.with_subject(name).with_limit(open, 0);
  if (found->second->held())
    return Error{Code::kBusy, "remove"}.with_subject(
        std::string{name} + ": clients may come back to it after the restart");
  removed = std::move(found->second);
  regions_.erase(found);
  record();
  return {};
}

std::vector<RegionInfo> Catalog::list(std::string_view after, std::size_t max,
                                      const std::function<bool(const RegionInfo&)>& shown) const {
  const MutexLock lock{mutex_};
  std::vector<RegionInfo> found;
  for (auto at = regions_.upper_bound(after); at != regions_.end() && found.size() < max; ++at)
    if (!shown || shown(at->second->fixed_info())) found.push_back(at->second->info());
  return found;
}

std::size_t Catalog::size() const {
  const MutexLock lock{mutex_};
  return regions_.size();
}

}  // namespace remora::detail
