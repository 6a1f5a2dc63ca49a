#pragma once

/// The memory that is lent: a budget of bytes, mapped and populated at start, cut into pieces.
///
/// A region's memory is a list of extents of the pool; an extent never crosses a piece. A region
/// that other processes may map (shm) gets a memfd of its own: its extents of the pool stay
/// reserved and their pages go back to the system meanwhile, so the budget holds for both kinds
/// together. Where devices have the pool registered as a whole, pages cannot go back, and such a
/// region takes its memory once more.
///
/// Memory is zero when it is handed out: what a region gives back is zeroed by the pool's own
/// thread before anybody else can have it. Thread-safe.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include <remora/config/memory_limit.h>
#include <remora/config/server_config.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/placement.h"
#include "base/unique_fd.h"
#include "server/memory/orphaned_mappings.h"
#include "transport/grant.h"

namespace remora::detail {

/// Memory is populated in steps, between which the caller may end it.
struct PopulateSteps {
  static constexpr std::uint64_t kStepBytes = 64ULL << 20U;
  std::stop_token stop{};
  /// Before each step, and after the last: how many bytes are populated.
  std::function<void(std::uint64_t done_bytes)> on_step{};
};

/// A shared mapping of a memfd of our own, sealed against every change of its size.
class SharedMemory {
 public:
  /// `core_dump`: core dumps of this process contain it. `populate`: touch every page now. On the
  /// memory node that `placement` names, if it names one and while that has any. Errors:
  /// kOutOfMemory, kSystem; kCancelled (steps.stop).
  static Result<SharedMemory> create(const char* name, std::uint64_t size_bytes,
                                     config::HugePages huge_pages, bool populate,
                                     const Placement& placement = {},
                                     const PopulateSteps& steps = {}, bool core_dump = false);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] bool huge() const noexcept { return huge_; }
  /// Gives the pages of a part back to the system; they read as zero afterwards.
  Status punch(std::uint64_t offset_bytes, std::uint64_t length_bytes) const noexcept;
  /// Errors: kOutOfMemory, kSystem; kCancelled (steps.stop; what is populated stays).
  Status populate(std::uint64_t offset_bytes, std::uint64_t length_bytes,
                  const PopulateSteps& steps = {}) const;

 private:
  SharedMemory(UniqueFd fd, std::span<std::byte> bytes, bool huge) noexcept
      : fd_{std::move(fd)}, bytes_{bytes}, huge_{huge} {}
  UniqueFd fd_;
  std::span<std::byte> bytes_;
  bool huge_;
};

class Pool;

/// A stretch of the pool.
struct PoolExtent {
  std::uint64_t offset_bytes;
  std::uint64_t length_bytes;
};

/// What was taken of the pool at once; goes back with the last holder.
class PoolShare {
 public:
  PoolShare(std::shared_ptr<Pool> pool, std::vector<PoolExtent> extents) noexcept;
  ~PoolShare();
  PoolShare(const PoolShare&) = delete;
  PoolShare& operator=(const PoolShare&) = delete;
  [[nodiscard]] std::span<const PoolExtent> extents() const noexcept { return extents_; }
  [[nodiscard]] std::uint64_t length_bytes() const noexcept;
  /// Gives back what lies behind the first `keep_bytes`.
  void cut(std::uint64_t keep_bytes);
  /// Its pages have gone back to the system already.
  void mark_punched() noexcept { punched_ = true; }

 private:
  std::shared_ptr<Pool> pool_;
  std::vector<PoolExtent> extents_;
  bool punched_ = false;
};

/// The memory of one region. A region that grows or shrinks gets another one, which has its shares
/// in common with this.
class RegionMemory {
 public:
  using Extent = PoolExtent;
  using Shares = std::vector<std::shared_ptr<PoolShare>>;
  RegionMemory(std::shared_ptr<Pool> pool, std::uint64_t size_bytes, Shares shares,
               std::unique_ptr<SharedMemory> own);
  ~RegionMemory();
  RegionMemory(const RegionMemory&) = delete;
  RegionMemory& operator=(const RegionMemory&) = delete;

  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// What it takes of the pool: whole pages.
  [[nodiscard]] std::uint64_t pool_bytes() const noexcept;
  /// In order; together size_bytes() long.
  [[nodiscard]] std::span<const transport::MemoryStretch> stretches() const noexcept {
    return stretches_;
  }
  /// The memfd that may be mapped by others, or -1.
  [[nodiscard]] int shareable_fd() const noexcept { return own_ == nullptr ? -1 : own_->fd(); }

 private:
  std::shared_ptr<Pool> pool_;
  friend class Pool;
  std::uint64_t size_bytes_;
  Shares shares_;
  std::unique_ptr<SharedMemory> own_;
  std::vector<transport::MemoryStretch> stretches_;
};

struct PoolUsage {
  std::uint64_t total_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t freeing_bytes = 0;
  [[nodiscard]] std::uint64_t free_bytes() const noexcept {
    return total_bytes - used_bytes - freeing_bytes;
  }
};

class Pool : public std::enable_shared_from_this<Pool> {
 public:
  /// Errors: kOutOfMemory (asked, what the machine has or the limit of a control group leaves,
  /// whose file is the subject), kSystem; kCancelled (steps.stop). `page_bytes_least`: what is
  /// handed out is a multiple of this, also where the memory's own pages are smaller.
  static Result<std::shared_ptr<Pool>> create(
      const config::Pool& options, const Placement& placement = {},
      std::uint64_t page_bytes_least = config::kPoolPageBytes, const PopulateSteps& steps = {},
      const config::CgroupFiles& groups = {});
  Pool(SharedMemory memory, const config::Pool& options, Placement placement,
       std::uint64_t page_bytes_least);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Zeroed memory of at least `size_bytes`, rounded up to pages. Waits until `deadline` for memory
  /// that is being zeroed. `steps`: of shareable memory, which is populated here. Errors:
  /// kOutOfMemory (asked, free), kTimedOut; kCancelled (steps.stop).
  Result<std::shared_ptr<RegionMemory>> allocate(std::uint64_t size_bytes, bool shareable,
                                                 Deadline deadline,
                                                 const PopulateSteps& steps = {});
  /// `memory`, and more behind it: together `size_bytes`. Errors: as allocate(); kUnsupported: of
  /// shareable memory, which is sealed.
  Result<std::shared_ptr<RegionMemory>> grow(const RegionMemory& memory, std::uint64_t size_bytes,
                                             Deadline deadline);
  /// The first `size_bytes` of `memory`; what is behind goes back and is zeroed. Nobody may reach
  /// that any more, and nobody else may have `memory`. Errors: kUnsupported; kBusy: somebody has.
  Result<std::shared_ptr<RegionMemory>> shrink(const std::shared_ptr<RegionMemory>& memory,
                                               std::uint64_t size_bytes);
  /// Whether shrink() could be done now. Errors: as shrink().
  static Status check_shrink(const std::shared_ptr<RegionMemory>& memory);
  [[nodiscard]] PoolUsage usage() const;
  /// What memory of this size takes: whole pages, which are huge ones where the pool has those. The
  /// largest number where there is none.
  [[nodiscard]] std::uint64_t whole_pages(std::uint64_t size_bytes) const noexcept;
  /// All of its memory, in order: an extent never crosses one of these.
  [[nodiscard]] std::vector<transport::MemoryStretch> pieces() const;
  /// Devices know the pool's pages: none goes back to the system from here on, not even those that
  /// the memfd of a shareable region stands in for. Before any region is.
  void keep_pages() noexcept { keep_pages_ = true; }
  /// Whether allocate() or grow() would wait: so many bytes are only there after more is zeroed.
  [[nodiscard]] bool must_wait(std::uint64_t size_bytes) const;
  /// `call` is called by the thread that zeroes, each time there is more; it does not block. Null:
  /// no more from here on, and none is under way.
  void on_cleaned(std::function<void()> call);
  /// Of regions that are gone, what other processes still hold: no longer the pool's. Some system
  /// calls for each such region; what nobody holds any more goes by it.
  std::uint64_t orphaned_bytes() noexcept { return orphaned_mappings_.held_bytes(); }
  std::vector<UniqueFd> take_dead_zombies() noexcept { return orphaned_mappings_.take_dead(); }

 private:
  friend class RegionMemory;
  friend class PoolShare;
  using Extent = PoolExtent;
  using FreeList = std::map<std::uint64_t, std::uint64_t>;  // offset -> length, one a piece

  Result<std::vector<Extent>> take(std::uint64_t size_bytes, Deadline deadline);
  std::vector<Extent> carve(std::uint64_t size_bytes);
  void give_back(const std::vector<Extent>& extents);
  void recycle(std::vector<Extent> extents, bool punched) noexcept;
  Result<std::unique_ptr<SharedMemory>> share(std::span<const Extent> extents,
                                              std::uint64_t size_bytes, const PopulateSteps& steps);
  void clean() noexcept;

  struct Dirty {
    std::vector<Extent> extents;
    bool punched;
  };
  SharedMemory memory_;
  OrphanedMappings orphaned_mappings_;
  std::uint64_t piece_bytes_;
  std::uint64_t page_bytes_;
  config::HugePages huge_pages_;
  bool populate_;
  bool core_dump_;
  config::CgroupFiles groups_;
  bool keep_pages_ = false;  ///< fixed once there is a region
  Placement placement_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<FreeList> free_;
  PoolUsage usage_;
  std::deque<Dirty> dirty_;
  bool stop_ = false;
  std::mutex call_mutex_;
  std::function<void()> on_cleaned_;  ///< under call_mutex_
  std::thread cleaner_;
};

}  // namespace remora::detail
