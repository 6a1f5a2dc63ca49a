#pragma once

/// The regions of a server, by name. Thread-safe.

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <remora/engine/region.h>
#include <remora/result.h>

#include "server/memory/pool.h"

namespace remora::detail {

/// What the regions of each owner take of the pool, those that are removed and still open too.
class OwnedBytes {
 public:
  void add(std::string_view owner, std::int64_t change_bytes);
  [[nodiscard]] std::uint64_t of(std::string_view owner) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::int64_t, std::less<>> bytes_;
};

/// A region that exists. Its memory goes back to the pool with the last reference.
class RegionEntry {
 public:
  RegionEntry(RegionInfo info, std::shared_ptr<RegionMemory> memory,
              std::shared_ptr<OwnedBytes> owned);
  ~RegionEntry();
  RegionEntry(const RegionEntry&) = delete;
  RegionEntry& operator=(const RegionEntry&) = delete;

  [[nodiscard]] RegionInfo info() const {
    RegionInfo info = info_;
    {
      const std::lock_guard lock{memory_mutex_};
      info.size_bytes = memory_->size_bytes();
      info.extent_count = memory_->stretches().size();
    }
    info.epoch = epoch_.load();
    info.open_count = open_count_.load();
    return info;
  }
  [[nodiscard]] const std::string& name() const noexcept { return info_.name; }
  /// What never changes: all but size, extents, epoch and open count.
  [[nodiscard]] const RegionInfo& fixed_info() const noexcept { return info_; }
  [[nodiscard]] Rights rights() const noexcept { return info_.rights; }
  /// That of now: a region that is resized has another one.
  [[nodiscard]] std::shared_ptr<RegionMemory> memory() const {
    const std::lock_guard lock{memory_mutex_};
    return memory_;
  }
  [[nodiscard]] std::uint64_t size_bytes() const { return memory()->size_bytes(); }

 private:
  friend class Catalog;
  [[nodiscard]] bool expired() const noexcept;
  /// Of the pool.
  void count_owned(std::uint64_t before_bytes, std::uint64_t now_bytes) const;
  RegionInfo info_;
  std::shared_ptr<OwnedBytes> owned_;
  mutable std::mutex memory_mutex_;
  std::shared_ptr<RegionMemory> memory_;
  std::atomic<std::uint64_t> epoch_;
  std::atomic<std::uint64_t> open_count_{0};
  std::atomic<Clock::rep> idle_since_{Clock::now().time_since_epoch().count()};
};

class Catalog {
 public:
  Catalog(std::shared_ptr<Pool> pool, std::size_t regions_max)
      : pool_{std::move(pool)}, regions_max_{regions_max} {}

  /// `spec.atomic_domain` is decided already. `owner` empty: the server. Errors: kInvalidArgument,
  /// kAlreadyExists, kLimitExceeded, kOutOfMemory, kTimedOut.
  Result<RegionInfo> create(const RegionSpec& spec, Deadline deadline, std::string_view owner = {},
                            const PopulateSteps& steps = {});
  /// What the regions of this owner take of the pool.
  [[nodiscard]] std::uint64_t owned_bytes(std::string_view owner) const {
    return owned_->of(owner);
  }
  /// What a region takes of the pool beyond what it did, when its size becomes `size_bytes`;
  /// `before_bytes` 0: it is made.
  [[nodiscard]] std::uint64_t more_bytes(std::uint64_t size_bytes,
                                         std::uint64_t before_bytes = 0) const noexcept {
    return pool_->whole_pages(size_bytes) - pool_->whole_pages(before_bytes);
  }
  /// Whether the owner may take so many bytes more of the pool; `quota_bytes` 0: no quota. Errors:
  /// kLimitExceeded, with what is left.
  [[nodiscard]] Status check_quota(std::string_view owner, std::uint64_t quota_bytes,
                                   std::uint64_t more_bytes) const;
  /// Counts as open until close(). Errors: kUnknownRegion.
  Result<std::shared_ptr<RegionEntry>> open(std::string_view name);
  void close(RegionEntry& entry) noexcept;
  /// Errors: kUnknownRegion.
  Result<std::shared_ptr<RegionEntry>> find(std::string_view name) const;
  /// Whether this region is still the one of its name.
  [[nodiscard]] bool holds(const RegionEntry& entry) const;
  /// What would keep the region from having this size. Errors: kInvalidArgument; kUnsupported (a
  /// region for shm: its memory is sealed).
  [[nodiscard]] static Status check_size(const RegionEntry& entry, std::uint64_t size_bytes);
  /// More memory behind what is there, which stays where it is. Errors: kOutOfMemory, kTimedOut.
  Status grow(RegionEntry& entry, std::uint64_t size_bytes, Deadline deadline);
  /// Gives up what is behind, which no grant may reach any more. Errors: kBusy: a view of the
  /// application does.
  Status shrink(RegionEntry& entry, std::uint64_t size_bytes);
  /// Whether that could be done now, but for the grants. Errors: as shrink().
  static Status check_shrink(const RegionEntry& entry);
  /// Gives the region the next epoch.
  void raise_epoch(RegionEntry& entry) noexcept;
  /// Nobody can open the region any more, and its name is free. False: it was so before.
  bool retire(const RegionEntry& entry) noexcept;
  /// Regions that nobody has had open for their ttl.
  [[nodiscard]] std::vector<std::shared_ptr<RegionEntry>> expired() const;
  /// Removes a region that is still expired.
  bool expire(const RegionEntry& entry) noexcept;
  /// Errors: kUnknownRegion, kBusy.
  Status remove(std::string_view name);
  /// Up to `most` regions with names greater than `after`, in order; without those that `shown`
  /// (empty: none) is false for.
  [[nodiscard]] std::vector<RegionInfo> list(
      std::string_view after, std::size_t most,
      const std::function<bool(const RegionInfo&)>& shown = {}) const;
  [[nodiscard]] std::size_t size() const;

 private:
  std::shared_ptr<Pool> pool_;
  std::size_t regions_max_;
  std::shared_ptr<OwnedBytes> owned_ = std::make_shared<OwnedBytes>();
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<RegionEntry>, std::less<>> regions_;
  std::uint64_t next_epoch_ = 1;
};

}  // namespace remora::detail
