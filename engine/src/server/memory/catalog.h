#pragma once

/// The regions of a server, by name.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <remora/engine/region.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "server/memory/owned_bytes.h"
#include "server/memory/pool.h"
#include "server/memory/region_entry.h"
#include "server/memory/region_journal.h"

namespace remora::detail {

/// Thread-safe.
class Catalog {
 public:
  /// `journal` outlives the catalog, and records each change before the change is answered; it may
  /// be null.
  Catalog(std::shared_ptr<Pool> pool, std::size_t regions_max, RegionJournal* journal = nullptr)
      : pool_{std::move(pool)}, journal_{journal}, regions_max_{regions_max} {}

  /// Sets the most regions that may exist from now on. Existing regions stay.
  void set_regions_max(std::size_t regions_max) noexcept REMORA_EXCLUDES(mutex_);

  /// A region of the previous process, with its memory. Added before the server accepts clients.
  struct Restored {
    RegionInfo info;
    std::uint64_t session_id;
    std::shared_ptr<RegionMemory> memory;
    bool moved;  ///< see RegionEntry::set_moved()
  };
  void restore(std::vector<Restored> regions, std::uint64_t next_epoch);
  /// See RegionEntry::hold(), for all present regions.
  void hold_all(Deadline until) noexcept;
  /// See RegionEntry::hold_longer(); regions that were created after hold_all() are not changed.
  void hold_longer(Deadline until) noexcept;
  /// Records all present regions in the journal.
  void record_all();
  /// The regions of Lifetime::kSession that this session has created.
  [[nodiscard]] std::vector<std::shared_ptr<RegionEntry>> of_session(
      std::uint64_t session_id) const;

  /// `spec.atomic_domain` is decided already. `owner` empty: the server. `session_id`: of
  /// Lifetime::kSession, the session that creates it. Errors: kInvalidArgument, kAlreadyExists,
  /// kLimitExceeded, kOutOfMemory, kTimedOut.
  Result<RegionInfo> create(const RegionSpec& spec, Deadline deadline, std::string_view owner = {},
                            const PopulateSteps& steps = {}, std::uint64_t session_id = 0);
  /// The bytes of the pool that the regions of this owner take.
  [[nodiscard]] std::uint64_t owned_bytes(std::string_view owner) const {
    return owned_->of(owner);
  }
  /// How many more bytes of the pool a region of `before_bytes` takes when its size becomes
  /// `size_bytes`. `before_bytes` 0: a new region.
  [[nodiscard]] std::uint64_t more_bytes(std::uint64_t size_bytes,
                                         std::uint64_t before_bytes = 0) const noexcept {
    return pool_->whole_pages(size_bytes) - pool_->whole_pages(before_bytes);
  }
  /// Whether the owner may use this many more bytes of the pool; `quota_bytes` 0: no quota. Errors:
  /// kLimitExceeded, with the bytes that are left.
  [[nodiscard]] Status check_quota(std::string_view owner, std::uint64_t quota_bytes,
                                   std::uint64_t more_bytes) const;
  /// Opens the region; it counts as open until close(). Errors: kUnknownRegion.
  Result<std::shared_ptr<RegionEntry>> open(std::string_view name);
  void close(RegionEntry& entry) noexcept;
  /// Errors: kUnknownRegion.
  Result<std::shared_ptr<RegionEntry>> find(std::string_view name) const;
  /// Whether this region still exists under its name.
  [[nodiscard]] bool holds(const RegionEntry& entry) const;
  /// Whether the region may have this size. Errors: kInvalidArgument; kUnsupported (a region for
  /// shm: its memory is sealed).
  [[nodiscard]] static Status check_size(const RegionEntry& entry, std::uint64_t size_bytes);
  /// Adds memory behind the region's memory, which stays where it is. Errors: kOutOfMemory,
  /// kTimedOut.
  Status grow(RegionEntry& entry, std::uint64_t size_bytes, Deadline deadline);
  /// Releases the bytes behind `size_bytes`, which no grant may reach any more. Errors: kBusy: a
  /// view of the application reaches them; kClosed: the memory is left to the next process.
  Status shrink(RegionEntry& entry, std::uint64_t size_bytes);
  /// Whether shrink() is possible now if the region has no grants. Errors: as shrink().
  static Status check_shrink(const RegionEntry& entry);
  /// Gives the region the next epoch.
  void raise_epoch(RegionEntry& entry) noexcept;
  /// From now on the region cannot be opened, and its name is free. False: it was retired already.
  bool retire(const RegionEntry& entry) noexcept;
  /// Regions that no session has had open for their ttl.
  [[nodiscard]] std::vector<std::shared_ptr<RegionEntry>> expired() const;
  /// Removes the region if it is still expired.
  bool expire(const RegionEntry& entry) noexcept;
  /// Removes a region. Errors: kUnknownRegion; kBusy: a session has it open, or may return to it.
  Status remove(std::string_view name);
  /// Up to `max` regions with names greater than `after`, in order, without those for which `shown`
  /// (empty: not called) returns false.
  [[nodiscard]] std::vector<RegionInfo> list(
      std::string_view after, std::size_t max,
      const std::function<bool(const RegionInfo&)>& shown = {}) const;
  [[nodiscard]] std::size_t size() const;

 private:
  /// Whether a region of this name may be added.
  [[nodiscard]] Status may_add(const std::string& name) const REMORA_REQUIRES(mutex_);
  [[nodiscard]] std::vector<JournaledRegion> journaled() const REMORA_REQUIRES(mutex_);
  void record() noexcept REMORA_REQUIRES(mutex_);

  std::shared_ptr<Pool> pool_;
  RegionJournal* const journal_;
  std::shared_ptr<OwnedBytes> owned_ = std::make_shared<OwnedBytes>();
  mutable Mutex mutex_;
  std::size_t regions_max_ REMORA_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<RegionEntry>, std::less<>> regions_
      REMORA_GUARDED_BY(mutex_);
  std::uint64_t next_epoch_ REMORA_GUARDED_BY(mutex_) = 1;
};

}  // namespace remora::detail
