#include "server/memory/pool.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <linux/memfd.h>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <remora/start_thread.h>
#include <remora/system_file.h>

#include "base/core_dump.h"
#include "base/log.h"

namespace remora::detail {

namespace {

/// Memory that this process may still take, as the machine says; 0 when it does not.
std::uint64_t available_bytes() {
  std::uint64_t available = 0;
  std::istringstream meminfo{read_file("/proc/meminfo").value_or("")};
  for (std::string key; meminfo >> key;) {
    std::uint64_t kibibytes = 0;
    if (key == "MemAvailable:" && meminfo >> kibibytes) available = kibibytes * 1024;
    meminfo.ignore(256, '\n');
  }
  return available;
}

/// Whether the machine and the control groups have room for a pool of so many bytes. Reserved huge
/// pages are counted by neither.
Status check_memory(const config::Pool& options, std::uint64_t size_bytes,
                    const config::CgroupFiles& groups) {
  if (options.huge_pages != config::HugePages::kNever &&
      config::free_huge_page_bytes() >= size_bytes)
    return {};
  const std::uint64_t available = available_bytes();
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

constexpr std::chrono::seconds kCleanAgain{1};

Error failed(Operation operation, const char* name, std::uint64_t size_bytes) {
  const int system_errno = errno;
  const bool memory = system_errno == ENOMEM || system_errno == ENOSPC || system_errno == EFAULT;
  return Error{memory ? Code::kOutOfMemory : Code::kSystem, operation}
      .with_subject(name)
      .with_errno(system_errno)
      .with_limit(size_bytes, available_bytes());
}

}  // namespace

Result<SharedMemory> SharedMemory::create(const char* name, std::uint64_t size_bytes,
                                          config::HugePages huge_pages, bool populate,
                                          const Placement& placement, const PopulateSteps& steps,
                                          bool core_dump) {
  const auto place = [&](std::span<std::byte> bytes) {
    keep_out_of_core_dumps(bytes, core_dump);
    if (placement.memory_node()) placement.place(bytes);
  };
  const bool fits = size_bytes % config::kHugePageBytes == 0;
  if (huge_pages != config::HugePages::kNever && fits) {
    UniqueFd fd{::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | MFD_HUGE_2MB)};
    if (fd && ::ftruncate(fd.get(), static_cast<off_t>(size_bytes)) == 0) {
      void* address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
      if (address != MAP_FAILED) {
        SharedMemory made{std::move(fd), {static_cast<std::byte*>(address), size_bytes}, true};
        place(made.bytes());
        // Huge pages that are missing show only when they are touched.
        const Status populated = made.populate(0, size_bytes, steps);
        if (!populated && populated.error().code() == Code::kCancelled) return populated.error();
        if (populated) {
          ::fchmod(made.fd(), 0600);
          ::fcntl(made.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
          return made;
        }
      }
    }
    if (huge_pages == config::HugePages::kRequire)
      return failed("huge pages (vm.nr_hugepages)", name, size_bytes);
  } else if (huge_pages == config::HugePages::kRequire) {
    return Error{Code::kInvalidArgument, "huge pages"}.with_subject("size is no multiple of 2 MiB");
  }
  UniqueFd fd{::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (!fd) return failed("memfd_create", name, size_bytes);
  // Mode 0600 before anybody can have the descriptor: no other user can open it again.
  if (::fchmod(fd.get(), 0600) != 0 || ::ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0)
    return failed("ftruncate", name, size_bytes);
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return failed("fcntl(F_ADD_SEALS)", name, size_bytes);
  void* address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return failed("mmap", name, size_bytes);
  SharedMemory made{std::move(fd), {static_cast<std::byte*>(address), size_bytes}, false};
  place(made.bytes());
  if (huge_pages != config::HugePages::kNever) ::madvise(address, size_bytes, MADV_HUGEPAGE);
  if (populate)
    if (auto status = made.populate(0, size_bytes, steps); !status) return status.error();
  return made;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_{std::move(other.fd_)}, bytes_{std::exchange(other.bytes_, {})}, huge_{other.huge_} {}

SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

Status SharedMemory::punch(std::uint64_t offset_bytes, std::uint64_t length_bytes) const noexcept {
  if (::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(offset_bytes), static_cast<off_t>(length_bytes)) == 0)
    return {};
  return Error{Code::kSystem, "fallocate(PUNCH_HOLE)"}.with_errno(errno);
}

Status SharedMemory::populate(std::uint64_t offset_bytes, std::uint64_t length_bytes,
                              const PopulateSteps& steps) const {
  std::uint64_t done = 0;
  while (done < length_bytes) {
    if (steps.on_step) steps.on_step(done);
    if (steps.stop.stop_requested())
      return Error{Code::kCancelled, "populate memory"}.with_limit(length_bytes, done);
    const std::uint64_t step = std::min(PopulateSteps::kStepBytes, length_bytes - done);
    if (::madvise(bytes_.data() + offset_bytes + done, step, MADV_POPULATE_WRITE) != 0)
      return failed("madvise(MADV_POPULATE_WRITE)", "pool", length_bytes);
    done += step;
  }
  if (steps.on_step) steps.on_step(done);
  return {};
}

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
    for (const Extent& extent : share->extents()) {
      const std::uint64_t length = std::min(left, extent.length_bytes);
      stretches_.push_back({pool_->memory_.bytes().data() + extent.offset_bytes, length});
      left -= length;
    }
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
  pool_->orphaned_mappings_.add(std::move(again), size_bytes_);
  for (const auto& share : shares_) share->mark_punched();
}

Result<std::shared_ptr<Pool>> Pool::create(const config::Pool& options, const Placement& placement,
                                           std::uint64_t page_bytes_least,
                                           const PopulateSteps& steps,
                                           const config::CgroupFiles& groups) {
  const std::uint64_t size = round_up(options.size_bytes, config::kPoolPageBytes);
  if (auto status = check_memory(options, size, groups); !status) return status.error();
  auto memory = SharedMemory::create("remora-pool", size, options.huge_pages, options.populate,
                                     placement, steps, options.core_dump);
  if (!memory) return memory.error();
  if (options.huge_pages == config::HugePages::kTry && !memory->huge())
    log::info("pool: no 2 MiB pages to be had, using ordinary ones");
  auto pool = std::make_shared<Pool>(std::move(*memory), options, placement, page_bytes_least);
  pool->groups_ = groups;
  auto cleaner = start_thread("remora-cleaner", [raw = pool.get()] { raw->clean(); });
  if (!cleaner) return cleaner.error();
  pool->cleaner_ = std::move(*cleaner);
  return pool;
}

Pool::Pool(SharedMemory memory, const config::Pool& options, Placement placement,
           std::uint64_t page_bytes_least)
    : memory_{std::move(memory)},
      piece_bytes_{options.piece_bytes},
      page_bytes_{std::max(memory_.huge() ? config::kHugePageBytes : config::kPoolPageBytes,
                           page_bytes_least)},
      huge_pages_{options.huge_pages},
      populate_{options.populate},
      core_dump_{options.core_dump},
      placement_{std::move(placement)} {
  usage_.total_bytes = memory_.bytes().size();
  for (std::uint64_t at = 0; at < usage_.total_bytes; at += piece_bytes_)
    free_.push_back({{at, std::min(piece_bytes_, usage_.total_bytes - at)}});
}

Pool::~Pool() {
  {
    const std::lock_guard lock{mutex_};
    stop_ = true;
  }
  changed_.notify_all();
  // A region's last holder may be anybody but the cleaner.
  if (cleaner_.joinable()) cleaner_.join();
}

PoolUsage Pool::usage() const {
  const std::lock_guard lock{mutex_};
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
  const std::lock_guard lock{mutex_};
  return usage_.freeing_bytes != 0 && usage_.free_bytes() < round_up(size_bytes, page_bytes_);
}

void Pool::on_cleaned(std::function<void()> call) {
  const std::lock_guard lock{call_mutex_};
  on_cleaned_ = std::move(call);
}

/// Takes extents that together hold `size_bytes` out of the free lists; empty when there are none.
/// One extent where a piece has room for all, else the largest first come.
std::vector<RegionMemory::Extent> Pool::carve(std::uint64_t size_bytes) {
  std::vector<Extent> taken;
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
  return taken;
}

void Pool::give_back(const std::vector<Extent>& extents) {
  for (const Extent& extent : extents) {
    FreeList& list = free_[extent.offset_bytes / piece_bytes_];
    auto at = list.emplace(extent.offset_bytes, extent.length_bytes).first;
    if (const auto next = std::next(at);
        next != list.end() && at->first + at->second == next->first) {
      at->second += next->second;
      list.erase(next);
    }
    if (at == list.begin()) continue;
    if (const auto before = std::prev(at); before->first + before->second == at->first) {
      before->second += at->second;
      list.erase(at);
    }
  }
}

Result<std::unique_ptr<SharedMemory>> Pool::share(std::span<const Extent> extents,
                                                  std::uint64_t size_bytes,
                                                  const PopulateSteps& steps) {
  // Pages that are kept are there beside the region's own: the pool alone has been checked.
  const auto limit = keep_pages_ ? config::memory_limit(groups_) : std::nullopt;
  if (limit && size_bytes > limit->left_bytes())
    return Error{Code::kOutOfMemory, "region over shm, larger than the memory limit"}
        .with_subject(limit->file)
        .with_limit(size_bytes, limit->left_bytes());
  // A page that a device knows would be replaced by one that it does not know.
  for (const Extent& extent : keep_pages_ ? std::span<const Extent>{} : extents)
    if (auto status = memory_.punch(extent.offset_bytes, extent.length_bytes); !status)
      return status.error();
  auto own = SharedMemory::create("remora-region", round_up(size_bytes, page_bytes_), huge_pages_,
                                  populate_, placement_, steps, core_dump_);
  if (!own) return own.error();
  return std::make_unique<SharedMemory>(std::move(*own));
}

/// `size_bytes`: whole pages.
Result<std::vector<PoolExtent>> Pool::take(std::uint64_t size_bytes, Deadline deadline) {
  const Error none = Error{Code::kOutOfMemory, "pool"}.with_reason(Reason::kPoolFull);
  std::unique_lock lock{mutex_};
  const bool in_time = changed_.wait_until(lock, deadline, [&] {
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
  if (size_bytes > usage_.total_bytes)
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
  if (memory.own_ != nullptr) return Error{Code::kUnsupported, "resize of memory for shm"};
  if (size_bytes > usage_.total_bytes)
    return Error{Code::kOutOfMemory, "pool"}
        .with_reason(Reason::kPoolFull)
        .with_limit(size_bytes, usage().free_bytes());
  RegionMemory::Shares shares = memory.shares_;
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
  if (memory->own_ != nullptr) return Error{Code::kUnsupported, "resize of memory for shm"};
  const auto shared = [](const auto& held) { return held.use_count() > 1; };
  if (shared(memory) || std::any_of(memory->shares_.begin(), memory->shares_.end(), shared))
    return Error{Code::kBusy, "resize"};
  return {};
}

Result<std::shared_ptr<RegionMemory>> Pool::shrink(const std::shared_ptr<RegionMemory>& memory,
                                                   std::uint64_t size_bytes) {
  if (auto status = check_shrink(memory); !status) return status.error();
  // The last page may stay in part: what is behind reads as zero when the region grows again.
  std::uint64_t at = 0;
  for (const transport::MemoryStretch& stretch : memory->stretches_) {
    const std::uint64_t end = at + stretch.length_bytes;
    const std::uint64_t from = std::clamp(size_bytes, at, end);
    const std::uint64_t to = std::clamp(round_up(size_bytes, page_bytes_), at, end);
    if (to > from) std::memset(stretch.address + (from - at), 0, to - from);
    at = end;
  }
  RegionMemory::Shares shares;
  std::uint64_t left = round_up(size_bytes, page_bytes_);
  for (const auto& share : memory->shares_) {
    if (left == 0) break;
    const std::uint64_t length = share->length_bytes();
    if (length > left) share->cut(left);
    left -= std::min(left, length);
    shares.push_back(share);
  }
  return std::make_shared<RegionMemory>(shared_from_this(), size_bytes, std::move(shares), nullptr);
}

void Pool::recycle(std::vector<Extent> extents, bool punched) noexcept {
  const std::lock_guard lock{mutex_};
  for (const Extent& extent : extents) {
    usage_.used_bytes -= extent.length_bytes;
    usage_.freeing_bytes += extent.length_bytes;
  }
  dirty_.push_back({std::move(extents), punched});
  changed_.notify_all();
}

/// The cleaner thread: zeroes what was given back, then frees it.
void Pool::clean() noexcept {
  std::unique_lock lock{mutex_};
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !dirty_.empty(); });
    if (stop_) return;
    const Dirty dirty = std::move(dirty_.front());
    dirty_.pop_front();
    lock.unlock();
    bool clean = true;
    for (const Extent& extent : dirty.extents) {
      if (dirty.punched) {
        // Fresh pages are zero. Huge ones that others have taken meanwhile would kill whoever
        // touches them, so they are taken back before anybody may.
        if (!populate_ && !memory_.huge()) continue;
        if (auto status = memory_.populate(extent.offset_bytes, extent.length_bytes); !status) {
          log::warn("pool: {}; trying again", status.error().message());
          clean = false;
        }
      } else {
        std::memset(memory_.bytes().data() + extent.offset_bytes, 0, extent.length_bytes);
      }
    }
    lock.lock();
    if (!clean) {
      dirty_.push_back(dirty);
      changed_.wait_for(lock, kCleanAgain, [this] { return stop_; });
      continue;
    }
    give_back(dirty.extents);
    for (const Extent& extent : dirty.extents) usage_.freeing_bytes -= extent.length_bytes;
    changed_.notify_all();
    lock.unlock();
    {
      const std::lock_guard call_lock{call_mutex_};
      if (on_cleaned_) on_cleaned_();
    }
    lock.lock();
  }
}

}  // namespace remora::detail
