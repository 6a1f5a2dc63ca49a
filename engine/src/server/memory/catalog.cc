#include "server/memory/catalog.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "protocol/messages.h"

namespace remora::detail {

namespace {

constexpr std::uint64_t kBlockBytesMin = 64;
constexpr std::uint64_t kBlockBytesMax = 16U << 20U;

Status check(const RegionSpec& spec) {
  const Error wrong{Code::kInvalidArgument, "create"};
  if (!config::is_region_name(spec.name))
    return wrong.with_subject("name: 1 to 64 of A-Z a-z 0-9 . _ -");
  if (!std::has_single_bit(spec.block_bytes) || spec.block_bytes < kBlockBytesMin ||
      spec.block_bytes > kBlockBytesMax)
    return wrong.with_subject("block size: a power of two, 64 B to 16 MiB")
        .with_limit(spec.block_bytes, kBlockBytesMax);
  if (spec.size_bytes == 0 || spec.size_bytes % spec.block_bytes != 0)
    return wrong.with_subject("size: a positive multiple of the block size")
        .with_limit(spec.size_bytes, spec.block_bytes);
  if (spec.rights == Rights::kNone || !includes(Rights::kAll, spec.rights))
    return wrong.with_subject("rights");
  constexpr std::chrono::milliseconds kTtlLeast{100};
  constexpr std::chrono::milliseconds kMaxTtl{control::kTtlMsMax};
  if (spec.lifetime == Lifetime::kTtl ? spec.ttl < kTtlLeast || spec.ttl > kMaxTtl
                                      : spec.ttl.count() != 0)
    return wrong.with_subject("ttl: 100 ms to 365 days with the lifetime ttl, none with others");
  return {};
}

Error unknown(std::string_view name) {
  return Error{Code::kUnknownRegion, "region"}.with_subject(name);
}

}  // namespace

void OwnedBytes::add(std::string_view owner, std::int64_t change_bytes) {
  const std::lock_guard lock{mutex_};
  const auto found = bytes_.try_emplace(std::string{owner}, 0).first;
  found->second += change_bytes;
  if (found->second == 0) bytes_.erase(found);
}

std::uint64_t OwnedBytes::of(std::string_view owner) const {
  const std::lock_guard lock{mutex_};
  const auto found = bytes_.find(owner);
  return found == bytes_.end() ? 0 : static_cast<std::uint64_t>(found->second);
}

RegionEntry::RegionEntry(RegionInfo info, std::shared_ptr<RegionMemory> memory,
                         std::shared_ptr<OwnedBytes> owned)
    : info_{std::move(info)},
      owned_{std::move(owned)},
      memory_{std::move(memory)},
      epoch_{info_.epoch} {
  count_owned(0, memory_->pool_bytes());
}

RegionEntry::~RegionEntry() { count_owned(memory_->pool_bytes(), 0); }

void RegionEntry::count_owned(std::uint64_t before_bytes, std::uint64_t now_bytes) const {
  owned_->add(info_.owner,
              static_cast<std::int64_t>(now_bytes) - static_cast<std::int64_t>(before_bytes));
}

Status Catalog::check_quota(std::string_view owner, std::uint64_t quota_bytes,
                            std::uint64_t more_bytes) const {
  if (quota_bytes == 0) return {};
  const std::uint64_t left = quota_bytes - std::min(owned_->of(owner), quota_bytes);
  if (more_bytes <= left) return {};
  return Error{Code::kLimitExceeded, "create"}
      .with_subject("bytes left of the quota of " + std::string{owner})
      .with_limit(more_bytes, left);
}

Result<RegionInfo> Catalog::create(const RegionSpec& spec, Deadline deadline,
                                   std::string_view owner, const PopulateSteps& steps) {
  if (auto status = check(spec); !status) return status.error();
  const auto may_come = [&]() -> Status {
    if (regions_.contains(spec.name))
      return Error{Code::kAlreadyExists, "create"}.with_subject(spec.name);
    if (regions_.size() >= regions_max_)
      return Error{Code::kLimitExceeded, "regions"}
          .with_subject("limits.regions_max")
          .with_limit(regions_.size() + 1, regions_max_);
    return {};
  };
  {
    const std::lock_guard lock{mutex_};
    if (auto may = may_come(); !may) return may.error();
  }
  // Without the lock: it may wait for memory that is being zeroed.
  auto memory = pool_->allocate(spec.size_bytes, spec.shm, deadline, steps);
  if (!memory) return memory.error().with_subject(spec.name);
  const std::lock_guard lock{mutex_};
  if (auto may = may_come(); !may) return may.error();
  const std::uint64_t epoch = next_epoch_++;
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
  regions_.emplace(spec.name, std::make_shared<RegionEntry>(info, std::move(*memory), owned_));
  return info;
}

Result<std::shared_ptr<RegionEntry>> Catalog::open(std::string_view name) {
  const std::lock_guard lock{mutex_};
  const auto found = regions_.find(name);
  if (found == regions_.end()) return unknown(name);
  ++found->second->open_count_;
  return found->second;
}

void Catalog::close(RegionEntry& entry) noexcept {
  entry.idle_since_.store(Clock::now().time_since_epoch().count());
  --entry.open_count_;
}

Result<std::shared_ptr<RegionEntry>> Catalog::find(std::string_view name) const {
  const std::lock_guard lock{mutex_};
  const auto found = regions_.find(name);
  if (found == regions_.end()) return unknown(name);
  return found->second;
}

bool Catalog::holds(const RegionEntry& entry) const {
  const std::lock_guard lock{mutex_};
  const auto found = regions_.find(entry.name());
  return found != regions_.end() && found->second.get() == &entry;
}

bool Catalog::retire(const RegionEntry& entry) noexcept {
  std::shared_ptr<RegionEntry> retired;  // its memory goes after the lock
  const std::lock_guard lock{mutex_};
  const auto found = regions_.find(entry.name());
  if (found == regions_.end() || found->second.get() != &entry) return false;
  retired = std::move(found->second);
  regions_.erase(found);
  return true;
}

bool RegionEntry::expired() const noexcept {
  if (info_.lifetime != Lifetime::kTtl || open_count_.load() != 0) return false;
  const Clock::time_point since{Clock::duration{idle_since_.load()}};
  return Clock::now() - since >= info_.ttl;
}

std::vector<std::shared_ptr<RegionEntry>> Catalog::expired() const {
  std::vector<std::shared_ptr<RegionEntry>> found;
  const std::lock_guard lock{mutex_};
  for (const auto& [name, entry] : regions_)
    if (entry->expired()) found.push_back(entry);
  return found;
}

bool Catalog::expire(const RegionEntry& entry) noexcept {
  std::shared_ptr<RegionEntry> removed;  // its memory goes after the lock
  const std::lock_guard lock{mutex_};
  const auto found = regions_.find(entry.name());
  if (found == regions_.end() || found->second.get() != &entry || !entry.expired()) return false;
  removed = std::move(found->second);
  regions_.erase(found);
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
  // Without the lock: it may wait for memory that is being zeroed.
  auto grown = pool_->grow(*entry.memory(), size_bytes, deadline);
  if (!grown) return grown.error().with_subject(entry.name());
  const std::lock_guard lock{entry.memory_mutex_};
  entry.count_owned(entry.memory_->pool_bytes(), (*grown)->pool_bytes());
  entry.memory_ = std::move(*grown);
  return {};
}

Status Catalog::check_shrink(const RegionEntry& entry) {
  const std::lock_guard lock{entry.memory_mutex_};
  const Status may = Pool::check_shrink(entry.memory_);
  return may ? may : may.error().with_subject(entry.name() + ": a view has it open");
}

Status Catalog::shrink(RegionEntry& entry, std::uint64_t size_bytes) {
  std::shared_ptr<RegionMemory> before;  // goes after the lock
  const std::lock_guard lock{entry.memory_mutex_};
  const std::uint64_t before_bytes = entry.memory_->pool_bytes();  // it loses what is cut off
  auto shrunk = pool_->shrink(entry.memory_, size_bytes);
  if (!shrunk) return shrunk.error().with_subject(entry.name() + ": a view has it open");
  entry.count_owned(before_bytes, (*shrunk)->pool_bytes());
  before = std::exchange(entry.memory_, std::move(*shrunk));
  return {};
}

void Catalog::raise_epoch(RegionEntry& entry) noexcept {
  const std::lock_guard lock{mutex_};
  entry.epoch_.store(next_epoch_++);
}

Status Catalog::remove(std::string_view name) {
  std::shared_ptr<RegionEntry> removed;  // its memory goes after the lock
  const std::lock_guard lock{mutex_};
  const auto found = regions_.find(name);
  if (found == regions_.end()) return unknown(name);
  if (const std::uint64_t open = found->second->open_count_.load(); open > 0)
    return Error{Code::kBusy, "remove"}.with_subject(name).with_limit(open, 0);
  removed = std::move(found->second);
  regions_.erase(found);
  return {};
}

std::vector<RegionInfo> Catalog::list(std::string_view after, std::size_t most,
                                      const std::function<bool(const RegionInfo&)>& shown) const {
  const std::lock_guard lock{mutex_};
  std::vector<RegionInfo> found;
  for (auto at = regions_.upper_bound(after); at != regions_.end() && found.size() < most; ++at)
    if (!shown || shown(at->second->fixed_info())) found.push_back(at->second->info());
  return found;
}

std::size_t Catalog::size() const {
  const std::lock_guard lock{mutex_};
  return regions_.size();
}

}  // namespace remora::detail
