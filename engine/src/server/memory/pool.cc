#include "server/memory/pool.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include <remora/assert.h>
#include <remora/start_thread.h>

#include "base/log.h"

namespace remora::detail {

namespace {

/// Whether the machine and the control groups have room for a pool of this size. Neither counts
/// reserved huge pages.
Status check_memory(const config::Pool& options, std::uint64_t size_bytes,
                    const config::CgroupFiles& groups) {
  if (options.huge_pages == config::HugePages::kRequire1GiB) {
    const std::uint64_t free = config::free_gib_page_bytes();
    if (free >= size_bytes) return {};
    return Error{Code::kOutOfMemory, "1 GiB pages"}
        .with_subject("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages")
        .with_limit(size_bytes, free);
  }
  if (options.huge_pages != config::HugePages::kNever &&
      config::free_huge_page_bytes() >= size_bytes)
    return {};
  const std::uint64_t available = available_memory_bytes();
  if (available != 0 && size_bytes > available)
    return Error{Code::kOutOfMemory, "pool larger than free memory"}
        .with_subject("pool.size")
        .with_limit(size_bytes, available);
  if (const auto limit = config::memory_limit(groups); limit && size_bytes > limit->left_bytes())
    return Error{Code::kOutOfMemory, "pool larger than the memory limit"}
        .with_subject(limit->file)
        .with_limit(size_bytes, limit->left_bytes());
  return {};
}

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

/// The pause between two attempts to populate huge pages.
constexpr std::chrono::seconds kCleanAgain{1};

}  // namespace

Result<std::shared_ptr<Pool>> Pool::create(const config::Pool& options, const Placement& placement,
                                           std::uint64_t page_bytes_min, const PopulateSteps& steps,
                                           const config::CgroupFiles& groups) {
  const std::uint64_t size = round_up(options.size_bytes, config::kPoolPageBytes);
  if (auto status = check_memory(options, size, groups); !status) return status.error();
  const std::uint64_t address = options.warm_restart ? SharedMemory::lasting_address() : 0;
  auto memory = SharedMemory::create("remora-pool", size, options.huge_pages, options.populate,
                                     placement, steps, options.core_dump, address);
  if (!memory) return memory.error();
  if (options.huge_pages == config::HugePages::kTry && !memory->huge())
    log::info({"pool.ordinary_pages"}, "pool: no 2 MiB pages to be had, using ordinary ones");
  auto pool = std::make_shared<Pool>(std::move(*memory), options, placement, page_bytes_min);
  pool->groups_ = groups;
  // The kernel takes back no part of such a page.
  if (options.huge_pages == config::HugePages::kRequire1GiB) pool->keep_pages();
  if (auto started = pool->start_cleaner(); !started) return started.error();
  return pool;
}

Result<std::shared_ptr<Pool>> Pool::adopt(SharedMemory memory, const config::Pool& options,
                                          const Placement& placement, std::uint64_t page_bytes,
                                          std::vector<PoolExtent> used) {
  // The pages are those that pool.huge_pages has named before. See create().
  const bool gib = memory.huge() && memory.page_bytes() > config::kHugePageBytes;
  auto pool = std::make_shared<Pool>(std::move(memory), options, placement, page_bytes);
  if (gib) pool->keep_pages();
  // First, since a pool without its thread can simply be destroyed.
  if (auto started = pool->start_cleaner(); !started) return started.error();
  pool->begin_with(std::move(used));
  return pool;
}

Status Pool::start_cleaner() {
  auto cleaner = start_thread("remora-cleaner", [this] { clean(); });
  if (!cleaner) return cleaner.error();
  cleaner_ = std::move(*cleaner);
  return {};
}

/// Regions use `used`; the bytes between are zeroed in steps, so that some of them are soon free.
void Pool::begin_with(std::vector<PoolExtent> used) {
  constexpr std::uint64_t kStepBytes = 64ULL << 20U;
  std::sort(used.begin(), used.end(), [](const PoolExtent& a, const PoolExtent& b) {
    return a.offset_bytes < b.offset_bytes;
  });
  const MutexLock lock{mutex_};
  for (FreeList& list : free_) list.clear();
  std::uint64_t at = 0;
  const auto leave_until = [&](std::uint64_t end) {
    mutex_.assert_held();
    while (at < end) {
      const std::uint64_t piece_end = (at / piece_bytes_ + 1) * piece_bytes_;
      const std::uint64_t length = std::min({end, piece_end, at + kStepBytes}) - at;
      usage_.freeing_bytes += length;
      // Pages that are not to be populated go back to the system, and are zero when they are
      // touched again.
      const bool punched = !populate_ && !memory_.huge() && memory_.punch(at, length).ok();
      dirty_.push_back({.extents = {{at, length}}, .punched = punched, .inherited = true});
      at += length;
    }
  };
  for (const PoolExtent& extent : used) {
    leave_until(extent.offset_bytes);
    REMORA_ASSERT(at == extent.offset_bytes, "extents that are taken over do not overlap");
    at += extent.length_bytes;
    usage_.used_bytes += extent.length_bytes;
  }
  leave_until(usage_.total_bytes);
  frozen_ = true;
  changed_.notify_all();
}

std::shared_ptr<RegionMemory> Pool::adopt_region(std::uint64_t size_bytes,
                                                 std::vector<PoolExtent> extents,
                                                 std::unique_ptr<SharedMemory> own) {
  auto share = std::make_shared<PoolShare>(shared_from_this(), std::move(extents));
  return std::make_shared<RegionMemory>(shared_from_this(), size_bytes,
                                        RegionMemory::Shares{std::move(share)}, std::move(own));
}

void Pool::accept() noexcept {
  const MutexLock lock{mutex_};
  frozen_ = false;
}

void Pool::hand_over() noexcept {
  {
    const MutexLock lock{mutex_};
    frozen_ = true;
    stop_ = true;
  }
  changed_.notify_all();
}

Pool::Pool(SharedMemory memory, const config::Pool& options, Placement placement,
           std::uint64_t page_bytes_min)
    : memory_{std::move(memory)},
      piece_bytes_{options.piece_bytes},
      page_bytes_{std::max(memory_.huge() ? config::kHugePageBytes : config::kPoolPageBytes,
                           page_bytes_min)},
      huge_pages_{options.huge_pages == config::HugePages::kRequire1GiB ? config::HugePages::kTry
                                                                        : options.huge_pages},
      populate_{options.populate},
      core_dump_{options.core_dump},
      lasting_{options.warm_restart},
      placement_{std::move(placement)} {
  const std::uint64_t total_bytes = memory_.bytes().size();
  usage_.total_bytes = total_bytes;
  for (std::uint64_t at = 0; at < total_bytes; at += piece_bytes_)
    free_.push_back({{at, std::min(piece_bytes_, total_bytes - at)}});
}

Pool::~Pool() {
  {
    const MutexLock lock{mutex_};
    REMORA_ASSERT(usage_.used_bytes == 0, "every share of the pool is given back before it goes");
    stop_ = true;
  }
  changed_.notify_all();
  // Any thread may hold a region last, except the cleaner.
  if (cleaner_.joinable()) cleaner_.join();
}

PoolUsage Pool::usage() const {
  const MutexLock lock{mutex_};
  return usage_;
}

std::uint64_t Pool::whole_pages(std::uint64_t size_bytes) const noexcept {
  constexpr auto kLargest = std::numeric_limits<std::uint64_t>::max();
  return size_bytes > kLargest - page_bytes_ ? kLargest : round_up(size_bytes, page_bytes_);
}

std::vector<transport::MemoryStretch> Pool::pieces() const {
  std::vector<transport::MemoryStretch> pieces;
  const std::span<std::byte> all = memory_.bytes();
  for (std::uint64_t at = 0; at < all.size(); at += piece_bytes_)
    pieces.push_back({all.data() + at, std::min<std::uint64_t>(piece_bytes_, all.size() - at)});
  return pieces;
}

bool Pool::must_wait(std::uint64_t size_bytes) const {
  const MutexLock lock{mutex_};
  return usage_.freeing_bytes != 0 && usage_.free_bytes() < round_up(size_bytes, page_bytes_);
}

void Pool::on_cleaned(std::function<void()> call) {
  const MutexLock lock{call_mutex_};
  on_cleaned_ = std::move(call);
}

/// Takes extents that together hold `size_bytes` out of the free lists; empty if the pool does not
/// have them. One extent if a piece has room for all bytes, otherwise the largest extents first.
std::vector<PoolExtent> Pool::carve(std::uint64_t size_bytes) {
  std::vector<PoolExtent> taken;
  const auto take = [&](FreeList& list, FreeList::iterator at, std::uint64_t length) {
    taken.push_back({at->first, length});
    if (at->second > length) list.emplace(at->first + length, at->second - length);
    list.erase(at);
  };
  for (FreeList& list : free_)
    for (auto at = list.begin(); at != list.end(); ++at)
      if (at->second >= size_bytes) {
        take(list, at, size_bytes);
        return taken;
      }
  std::uint64_t left = size_bytes;
  for (FreeList& list : free_)
    while (left > 0 && !list.empty()) {
      const std::uint64_t length = std::min(left, list.begin()->second);
      take(list, list.begin(), length);
      left -= length;
    }
  REMORA_ASSERT(left == 0, "the free lists have all bytes that are free");
  return taken;
}

/// Adds free extents, and joins each with its free neighbours.
void Pool::free_extents(const std::vector<PoolExtent>& extents) {
  for (const PoolExtent& extent : extents) {
    FreeList& list = free_[extent.offset_bytes / piece_bytes_];
    const auto [at, is_new] = list.emplace(extent.offset_bytes, extent.length_bytes);
    REMORA_ASSERT(is_new, "an extent of the pool is freed once");
    if (const auto next = std::next(at); next != list.end()) {
      REMORA_ASSERT(at->first + at->second <= next->first, "extents of the pool do not overlap");
      if (at->first + at->second == next->first) {
        at->second += next->second;
        list.erase(next);
      }
    }
    if (at == list.begin()) continue;
    const auto before = std::prev(at);
    REMORA_ASSERT(before->first + before->second <= at->first,
                  "extents of the pool do not overlap");
    if (before->first + before->second == at->first) {
      before->second += at->second;
      list.erase(at);
    }
  }
}

Result<std::unique_ptr<SharedMemory>> Pool::share(std::span<const PoolExtent> extents,
                                                  std::uint64_t size_bytes,
                                                  const PopulateSteps& steps) {
  // Kept pages exist beside the pages of the region's own memfd; only the pool's size has been
  // checked.
  const auto limit = keep_pages_ ? config::memory_limit(groups_) : std::nullopt;
  if (limit && size_bytes > limit->left_bytes())
    return Error{Code::kOutOfMemory, "region over shm, larger than the memory limit"}
        .with_subject(limit->file)
        .with_limit(size_bytes, limit->left_bytes());
  // A page that a device has registered would be replaced by a page that it has not registered.
  for (const PoolExtent& extent : keep_pages_ ? std::span<const PoolExtent>{} : extents)
    if (auto status = memory_.punch(extent.offset_bytes, extent.length_bytes); !status)
      return status.error();
  auto own = SharedMemory::create("remora-region", round_up(size_bytes, page_bytes_), huge_pages_,
                                  populate_, placement_, steps, core_dump_,
                                  lasting_ ? SharedMemory::lasting_address() : 0);
  if (!own) return own.error();
  return std::make_unique<SharedMemory>(std::move(*own));
}

/// `size_bytes`: a multiple of the page size.
Result<std::vector<PoolExtent>> Pool::take(std::uint64_t size_bytes, Deadline deadline) {
  const Error none = Error{Code::kOutOfMemory, "pool"}.with_reason(Reason::kPoolFull);
  MutexLock lock{mutex_};
  const bool in_time = changed_.wait_until(lock, deadline, [&] {
    mutex_.assert_held();
    return usage_.free_bytes() >= size_bytes || usage_.freeing_bytes == 0 || stop_;
  });
  if (!in_time) return Error{Code::kTimedOut, "zeroing of removed regions"};
  if (usage_.free_bytes() < size_bytes) return none.with_limit(size_bytes, usage_.free_bytes());
  auto extents = carve(size_bytes);
  usage_.used_bytes += size_bytes;
  return extents;
}

Result<std::shared_ptr<RegionMemory>> Pool::allocate(std::uint64_t size_bytes, bool shareable,
                                                     Deadline deadline,
                                                     const PopulateSteps& steps) {
  if (size_bytes > memory_.bytes().size())
    return Error{Code::kOutOfMemory, "pool"}
        .with_reason(Reason::kPoolFull)
        .with_limit(size_bytes, usage().free_bytes());
  auto extents = take(round_up(size_bytes, page_bytes_), deadline);
  if (!extents) return extents.error();
  auto share = std::make_shared<PoolShare>(shared_from_this(), std::move(*extents));
  std::unique_ptr<SharedMemory> own;
  if (shareable) {
    auto shared = this->share(share->extents(), size_bytes, steps);
    if (!shared) {
      share->mark_punched();
      return shared.error();
    }
    own = std::move(*shared);
  }
  return std::make_shared<RegionMemory>(shared_from_this(), size_bytes,
                                        RegionMemory::Shares{std::move(share)}, std::move(own));
}

Result<std::shared_ptr<RegionMemory>> Pool::grow(const RegionMemory& memory,
                                                 std::uint64_t size_bytes, Deadline deadline) {
  if (memory.shareable()) return Error{Code::kUnsupported, "resize of memory for shm"};
  if (size_bytes > memory_.bytes().size())
    return Error{Code::kOutOfMemory, "pool"}
        .with_reason(Reason::kPoolFull)
        .with_limit(size_bytes, usage().free_bytes());
  RegionMemory::Shares shares = memory.shares();
  std::uint64_t there_bytes = 0;
  for (const auto& share : shares) there_bytes += share->length_bytes();
  const std::uint64_t rounded = round_up(size_bytes, page_bytes_);
  if (rounded > there_bytes) {
    auto extents = take(rounded - there_bytes, deadline);
    if (!extents) return extents.error();
    shares.push_back(std::make_shared<PoolShare>(shared_from_this(), std::move(*extents)));
  }
  return std::make_shared<RegionMemory>(shared_from_this(), size_bytes, std::move(shares), nullptr);
}

Status Pool::check_shrink(const std::shared_ptr<RegionMemory>& memory) {
  if (memory->shareable()) return Error{Code::kUnsupported, "resize of memory for shm"};
  const auto shared = [](const auto& held) { return held.use_count() > 1; };
  if (shared(memory) || std::any_of(memory->shares().begin(), memory->shares().end(), shared))
    return Error{Code::kBusy, "resize"};
  return {};
}

Result<std::shared_ptr<RegionMemory>> Pool::shrink(const std::shared_ptr<RegionMemory>& memory,
                                                   std::uint64_t size_bytes) {
  if (auto status = check_shrink(memory); !status) return status.error();
  // A part of the last page may stay: its other bytes read as zero when the region grows again.
  std::uint64_t at = 0;
  for (const transport::MemoryStretch& stretch : memory->stretches()) {
    const std::uint64_t end = at + stretch.length_bytes;
    const std::uint64_t from = std::clamp(size_bytes, at, end);
    const std::uint64_t to = std::clamp(round_up(size_bytes, page_bytes_), at, end);
    if (to > from) std::memset(stretch.address + (from - at), 0, to - from);
    at = end;
  }
  RegionMemory::Shares shares;
  std::uint64_t left = round_up(size_bytes, page_bytes_);
  for (const auto& share : memory->shares()) {
    if (left == 0) break;
    const std::uint64_t length = share->length_bytes();
    if (length > left) share->cut(left);
    left -= std::min(left, length);
    shares.push_back(share);
  }
  return std::make_shared<RegionMemory>(shared_from_this(), size_bytes, std::move(shares), nullptr);
}

void Pool::recycle(std::vector<PoolExtent> extents, bool punched) noexcept {
  const MutexLock lock{mutex_};
  for (const PoolExtent& extent : extents) {
    REMORA_ASSERT(usage_.used_bytes >= extent.length_bytes,
                  "no more of the pool is given back than was taken");
    usage_.used_bytes -= extent.length_bytes;
    usage_.freeing_bytes += extent.length_bytes;
  }
  if (frozen_) return;
  dirty_.push_back({std::move(extents), punched});
  changed_.notify_all();
}

/// False: some of the memory is not zero yet, and the caller tries again later.
bool Pool::make_clean(const Dirty& dirty) const noexcept {
  bool clean = true;
  for (const PoolExtent& extent : dirty.extents) {
    // Fresh pages are zero. If other processes have taken the huge pages meanwhile, the first
    // access would kill the process, so they are populated before the extent is free.
    const bool may_lack_pages = dirty.punched || dirty.inherited;
    if (may_lack_pages && (populate_ || memory_.huge()))
      if (auto status = memory_.populate(extent.offset_bytes, extent.length_bytes); !status) {
        log::warn({"pool.tried_again", "reason"}, "pool: {}; trying again",
                  status.error().message());
        clean = false;
        continue;
      }
    if (!dirty.punched)
      std::memset(memory_.bytes().data() + extent.offset_bytes, 0, extent.length_bytes);
  }
  return clean;
}

/// The cleaner thread: zeroes released extents, then frees them.
void Pool::clean() noexcept {
  MutexLock lock{mutex_};
  while (true) {
    changed_.wait(lock, [this] {
      mutex_.assert_held();
      return stop_ || !dirty_.empty();
    });
    if (stop_) return;
    const Dirty dirty = std::move(dirty_.front());
    dirty_.pop_front();
    lock.unlock();
    const bool clean = make_clean(dirty);
    lock.lock();
    if (!clean) {
      dirty_.push_back(dirty);
      changed_.wait_for(lock, kCleanAgain, [this] {
        mutex_.assert_held();
        return stop_;
      });
      continue;
    }
    free_extents(dirty.extents);
    for (const PoolExtent& extent : dirty.extents) {
      REMORA_ASSERT(usage_.freeing_bytes >= extent.length_bytes,
                    "an extent that is cleaned is counted as being freed");
      usage_.freeing_bytes -= extent.length_bytes;
    }
    changed_.notify_all();
    lock.unlock();
    {
      const MutexLock call_lock{call_mutex_};
      if (on_cleaned_) on_cleaned_();
    }
    lock.lock();
  }
}

}  // namespace remora::detail
