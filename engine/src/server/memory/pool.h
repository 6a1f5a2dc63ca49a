#pragma once

/// The memory that the server offers: a number of bytes, mapped and populated at start, divided
/// into pieces.
///
/// A region's memory is a list of extents of the pool; an extent never crosses a piece. A region
/// that other processes may map (shm) gets a memfd of its own: its extents of the pool stay
/// reserved and their pages go back to the system meanwhile, so the budget holds for both kinds
/// together. If devices have registered the whole pool, its pages cannot go back, and such a region
/// uses twice its memory.
///
/// Memory is zero when it is allocated: the pool's own thread zeroes the memory of a removed region
/// before another region can get it. Thread-safe.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <remora/config/memory_limit.h>
#include <remora/config/server_config.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/placement.h"
#include "base/unique_fd.h"
#include "server/memory/orphaned_mappings.h"
#include "server/memory/pool_share.h"
#include "server/memory/region_memory.h"
#include "server/memory/shared_memory.h"
#include "transport/grant.h"

namespace remora::detail {

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
  /// Errors: kOutOfMemory (with the requested bytes, and the bytes that the machine has or that the
  /// limit of a control group leaves; then its file is the subject), kSystem; kCancelled
  /// (steps.stop). The pool allocates multiples of `page_bytes_min`, even if the memory's own pages
  /// are smaller.
  static Result<std::shared_ptr<Pool>> create(const config::Pool& options,
                                              const Placement& placement = {},
                                              std::uint64_t page_bytes_min = config::kPoolPageBytes,
                                              const PopulateSteps& steps = {},
                                              const config::CgroupFiles& groups = {});
  /// The pool of the previous process, whose regions use `used`: extents of whole pages within
  /// pieces, which do not overlap. Other bytes are zeroed before they are allocated. `options`: the
  /// size of a piece must be that of the previous process. Errors: those of start_thread().
  static Result<std::shared_ptr<Pool>> adopt(SharedMemory memory, const config::Pool& options,
                                             const Placement& placement, std::uint64_t page_bytes,
                                             std::vector<PoolExtent> used);
  /// The memory of one of these regions. `own`: its memfd (shm), or null.
  std::shared_ptr<RegionMemory> adopt_region(std::uint64_t size_bytes,
                                             std::vector<PoolExtent> extents,
                                             std::unique_ptr<SharedMemory> own);
  Pool(SharedMemory memory, const config::Pool& options, Placement placement,
       std::uint64_t page_bytes_min);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Zeroed memory of at least `size_bytes`, rounded up to pages. Waits until `deadline` for memory
  /// that is being zeroed. `steps`: for shareable memory, which this call populates. Errors:
  /// kOutOfMemory (asked, free), kTimedOut; kCancelled (steps.stop).
  Result<std::shared_ptr<RegionMemory>> allocate(std::uint64_t size_bytes, bool shareable,
                                                 Deadline deadline,
                                                 const PopulateSteps& steps = {});
  /// `memory` with more behind it, `size_bytes` together. Errors: as allocate(); kUnsupported: the
  /// memory is shareable, and so sealed.
  Result<std::shared_ptr<RegionMemory>> grow(const RegionMemory& memory, std::uint64_t size_bytes,
                                             Deadline deadline);
  /// The first `size_bytes` of `memory`; the bytes behind them are released and zeroed. No grant
  /// may reach those any more, and only the caller may hold `memory`. Errors: kUnsupported; kBusy:
  /// there is another holder.
  Result<std::shared_ptr<RegionMemory>> shrink(const std::shared_ptr<RegionMemory>& memory,
                                               std::uint64_t size_bytes);
  /// Whether shrink() could be done now. Errors: as shrink().
  static Status check_shrink(const std::shared_ptr<RegionMemory>& memory);
  [[nodiscard]] PoolUsage usage() const;
  /// The bytes that memory of this size uses: whole pages, which are huge if the pool has huge
  /// ones. The largest number if the sum would overflow.
  [[nodiscard]] std::uint64_t whole_pages(std::uint64_t size_bytes) const noexcept;
  /// All memory of the pool, in order: an extent never crosses one of these pieces.
  [[nodiscard]] std::vector<transport::MemoryStretch> pieces() const;
  /// Devices have registered the pool's pages: from here on no page goes back to the system, not
  /// even pages that the memfd of a shareable region replaces. Called before any region exists.
  void keep_pages() noexcept { keep_pages_ = true; }
  /// After adopt(): the server serves. Before this call, removed regions leave their bytes
  /// unchanged, since a start that fails leaves the memory to the next process.
  void accept() noexcept;
  /// Another process takes the memory over: nothing is zeroed from here on.
  void hand_over() noexcept;
  /// Whether allocate() or grow() of `size_bytes` would wait until more memory is zeroed.
  [[nodiscard]] bool must_wait(std::uint64_t size_bytes) const;
  /// The thread that zeroes calls `call` each time more memory is free; it must not block. Null: on
  /// return `call` is not called any more and does not run.
  void on_cleaned(std::function<void()> call);
  /// Bytes of removed regions that other processes still have mapped; they no longer belong to the
  /// pool. Makes some system calls for each such region.
  std::uint64_t orphaned_bytes() noexcept { return orphaned_mappings_.held_bytes(); }
  /// See OrphanedMappings::take_unheld().
  std::vector<UniqueFd> take_unheld_orphans() noexcept { return orphaned_mappings_.take_unheld(); }

  // For RegionMemory and PoolShare.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return memory_.bytes(); }
  [[nodiscard]] int fd() const noexcept { return memory_.fd(); }
  [[nodiscard]] bool huge() const noexcept { return memory_.huge(); }
  [[nodiscard]] std::uint64_t piece_bytes() const noexcept { return piece_bytes_; }
  [[nodiscard]] std::uint64_t page_bytes() const noexcept { return page_bytes_; }
  /// See OrphanedMappings::add().
  void follow_orphaned(UniqueFd again, std::uint64_t size_bytes) noexcept {
    orphaned_mappings_.add(std::move(again), size_bytes);
  }
  /// Releases extents: they are zeroed, then free. `punched`: their pages have gone back to the
  /// system.
  void recycle(std::vector<PoolExtent> extents, bool punched) noexcept;

 private:
  using FreeList = std::map<std::uint64_t, std::uint64_t>;  ///< in a piece: offset -> length

  Result<std::vector<PoolExtent>> take(std::uint64_t size_bytes, Deadline deadline);
  std::vector<PoolExtent> carve(std::uint64_t size_bytes) REMORA_REQUIRES(mutex_);
  void free_extents(const std::vector<PoolExtent>& extents) REMORA_REQUIRES(mutex_);
  Result<std::unique_ptr<SharedMemory>> share(std::span<const PoolExtent> extents,
                                              std::uint64_t size_bytes, const PopulateSteps& steps);
  Status start_cleaner();
  void begin_with(std::vector<PoolExtent> used);
  void clean() noexcept;

  struct Dirty {
    std::vector<PoolExtent> extents;
    bool punched;
    bool inherited = false;  ///< from the previous process: it is unknown which pages exist
  };
  [[nodiscard]] bool make_clean(const Dirty& dirty) const noexcept;
  SharedMemory memory_;
  OrphanedMappings orphaned_mappings_;
  std::uint64_t piece_bytes_;
  std::uint64_t page_bytes_;
  config::HugePages huge_pages_;
  bool populate_;
  bool core_dump_;
  const bool lasting_;  ///< memory is mapped where a later process can probably map it
  config::CgroupFiles groups_;
  bool keep_pages_ = false;  ///< does not change once a region exists
  Placement placement_;
  mutable Mutex mutex_;
  Condition changed_;
  std::vector<FreeList> free_ REMORA_GUARDED_BY(mutex_);  ///< one for each piece
  PoolUsage usage_ REMORA_GUARDED_BY(mutex_);
  std::deque<Dirty> dirty_ REMORA_GUARDED_BY(mutex_);  ///< released and not zeroed yet
  bool stop_ REMORA_GUARDED_BY(mutex_) = false;
  /// Released memory is not changed: see accept() and hand_over().
  bool frozen_ REMORA_GUARDED_BY(mutex_) = false;
  Mutex call_mutex_;  ///< held while on_cleaned_ runs; never together with mutex_
  std::function<void()> on_cleaned_ REMORA_GUARDED_BY(call_mutex_);
  std::thread cleaner_;
};

}  // namespace remora::detail
