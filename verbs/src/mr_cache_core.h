#pragma once

/// State that an MrCache shares with its leases. Internal.
///
/// A registration's state is a count of leases over three bits. kDead: gets no more leases; the
/// thread that sets it removes the registration from the index. kUnlinked: it is not in the index;
/// the unlinking thread deregisters it or, if there are leases, the end of the last one. kFresh: in
/// the index, so that changes reach it, but without leases until it is certain that no change was
/// missed.

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <remora/mutex.h>
#include <remora/verbs/memory_region.h>
#include <remora/verbs/mr_cache.h>

#include "interval_index.h"
#include "memory_monitor.h"
#include "registration_slab.h"

namespace remora::verbs::detail {

struct CachedRegistration;
using RegistrationLines = RegistrationSlab<CachedRegistration>;

/// The part of a registration that neither a hit nor the end of a lease accesses.
struct RegistrationRest final : Retired {
  void destroy() noexcept override;

  CachedRegistration* line = nullptr;  ///< the other half; owned
  std::shared_ptr<RegistrationLines> lines;
  CachedRegistration* next_listed = nullptr;  ///< in a RegistrationList
  std::shared_ptr<MrCacheCore> core;
  std::vector<MemoryRegion> pieces;  ///< by address
  /// Guarded by the cache's lock.
  IntervalIndex* index = nullptr;  ///< the index that contains it
  std::uint64_t queued_at = 0;     ///< its key in the eviction order
};

/// The part that a hit and the end of a lease access: one cache line.
struct alignas(64) CachedRegistration final : Interval {
  static constexpr std::uint64_t kDead = 1;
  static constexpr std::uint64_t kUnlinked = 2;
  static constexpr std::uint64_t kFresh = 4;
  static constexpr std::uint64_t kLease = 8;

  struct Destroy {
    void operator()(CachedRegistration* registration) const noexcept {
      registration->rest->destroy();
    }
  };
  /// Throws std::bad_alloc.
  static std::unique_ptr<CachedRegistration, Destroy> make(
      const std::shared_ptr<RegistrationLines>& lines);

  [[nodiscard]] bool take() noexcept {
    std::uint64_t seen = state.load();
    while ((seen & (kDead | kFresh)) == 0)
      if (state.compare_exchange_weak(seen, seen + kLease)) return true;
    return false;
  }

  std::atomic<std::uint64_t> state{kLease};
  std::atomic<std::uint64_t> used{0};  ///< the last hit, in the cache's time
  std::uint32_t lkey = 0;              ///< of a single piece, so that hits need not read it there
  std::uint32_t rkey = 0;
  RegistrationRest* rest = nullptr;
  CachedRegistration* next_dead = nullptr;
  bool single = false;
};

/// The registration that an entry of the index belongs to.
inline CachedRegistration& registration_of(Interval& interval) noexcept {
  return static_cast<CachedRegistration&>(interval);
}

/// Registrations that are being removed, linked through themselves, since removal must not need
/// memory. Each is in one list at a time: found under the cache's lock, or the owner's.
class RegistrationList {
 public:
  void push(CachedRegistration& registration) noexcept {
    registration.rest->next_listed = first_;
    first_ = &registration;
  }
  /// Null when there is none.
  CachedRegistration* pop() noexcept {
    CachedRegistration* const registration = first_;
    if (registration != nullptr) first_ = registration->rest->next_listed;
    return registration;
  }

 private:
  CachedRegistration* first_ = nullptr;
};

/// The MR cache of one protection domain. exception: Shelf, Pinned, Emptied and Hits are records.
class MrCacheCore final : public MemoryMonitor::Subscriber,
                          public std::enable_shared_from_this<MrCacheCore> {
 public:
  MrCacheCore(const ProtectionDomain& domain, const MrCacheOptions& options);
  ~MrCacheCore() override;
  MrCacheCore(const MrCacheCore&) = delete;
  MrCacheCore& operator=(const MrCacheCore&) = delete;

  Status open();
  void close() noexcept;

  Result<MrLease> acquire(std::span<std::byte> bytes, Access access, Deadline deadline);
  [[nodiscard]] MrLease find_kept(std::span<std::byte> bytes, Access access) noexcept;
  std::size_t invalidate(std::span<std::byte> bytes);
  std::size_t trim() noexcept;
  static void release(CachedRegistration* registration) noexcept;
  /// Leaves the deregistration that release() would do to the reaper.
  static void release_soon(CachedRegistration* registration) noexcept;
  [[nodiscard]] bool keeps() const noexcept { return monitor_ != nullptr || explicit_; }
  [[nodiscard]] bool automatic() const noexcept { return monitor_ != nullptr; }
  [[nodiscard]] std::string_view why_not() const noexcept { return why_not_; }
  [[nodiscard]] MrCacheCounters counters() const;
  [[nodiscard]] bool forked() const noexcept { return remora::detail::this_process() != made_in_; }

  void changed(std::uintptr_t begin, std::uintptr_t end, MappingChange how) noexcept override;
  void reap() noexcept override { static_cast<void>(collect_dead()); }

 private:
  using Doomed = RegistrationList;  ///< its owner calls finish() for each
  enum class LookUp : std::uint8_t { kHit, kMiss, kUnsettled };
  struct Shelf {
    Access access = Access::kNone;
    IntervalIndex index;
  };
  struct Reservation;
  struct Pinned {
    std::uint64_t bytes = 0;
    std::uint64_t count = 0;
  };
  struct Emptied {
    Pinned freed;
    Pinned stuck;  ///< not deregistered after an error: still pinned
  };
  struct alignas(64) Hits {
    std::atomic<std::uint64_t> count{0};
  };
  static constexpr std::size_t kShelvesMax = 8;
  static constexpr std::size_t kHitShards = 64;
  static constexpr std::size_t kErrnosMax = 134;  ///< Linux's own

  LookUp look_up(std::uintptr_t begin, std::uintptr_t end, Access access,
                 CachedRegistration*& found) noexcept;
  CachedRegistration* find(std::uintptr_t begin, std::uintptr_t end, Access access) const noexcept;
  /// A lease of a registration found at `generation`, if it is still valid.
  LookUp take(CachedRegistration* found, std::uint64_t generation, std::size_t shard) noexcept;
  Result<MrLease> register_new(std::span<std::byte> bytes, Access access, Deadline deadline,
                               bool keep);
  void add_dead(CachedRegistration& registration) noexcept;
  Status reserve(Pinned wanted, Deadline deadline, Reservation& reservation);
  void requeue_first_locked(std::uint64_t at) noexcept REMORA_REQUIRES(mutex_);
  CachedRegistration* evict_one_locked() noexcept REMORA_REQUIRES(mutex_);
  Status register_pieces(std::uintptr_t begin, std::uintptr_t end, Access access, Deadline deadline,
                         std::vector<MemoryRegion>& pieces);
  Status register_in_parallel(const std::vector<std::span<std::byte>>& parts, Access access,
                              Deadline deadline, std::vector<MemoryRegion>& pieces);
  bool publish(CachedRegistration& made, Access access, std::uint64_t invalidations) noexcept;
  void settle(CachedRegistration& made, std::uint64_t generation);
  bool publish_locked(CachedRegistration& made, Access access, Doomed& doomed)
      REMORA_REQUIRES(mutex_);
  Shelf* shelf_locked(Access access) REMORA_REQUIRES(mutex_);
  void unlink_locked(CachedRegistration& registration) noexcept REMORA_REQUIRES(mutex_);
  bool kill_locked(CachedRegistration& registration, Doomed& doomed) noexcept
      REMORA_REQUIRES(mutex_);
  std::size_t kill_touching_locked(const IntervalIndex& index, std::uintptr_t begin,
                                   std::uintptr_t end, Doomed& doomed) noexcept
      REMORA_REQUIRES(mutex_);
  Doomed take_dead_locked() noexcept REMORA_REQUIRES(mutex_);
  bool collect_dead() noexcept;
  void doom_locked(CachedRegistration& registration, Doomed& doomed) noexcept
      REMORA_REQUIRES(mutex_);
  static bool let_go(CachedRegistration& registration) noexcept;
  void finish_last(CachedRegistration* registration) noexcept;
  void finish(Doomed doomed) noexcept;
  void finish(CachedRegistration* registration) noexcept;
  Emptied deregister(std::vector<MemoryRegion>& pieces) noexcept;
  void count_failure(const Error& error) noexcept;

  const ProtectionDomain domain_;
  const MrCacheOptions options_;
  const bool explicit_;
  std::uint64_t piece_bytes_;
  const std::uint32_t made_in_ = remora::detail::made_here();
  std::shared_ptr<MemoryMonitor> monitor_;
  std::string why_not_;

  const std::shared_ptr<RegistrationLines> lines_ = std::make_shared<RegistrationLines>();
  std::array<Shelf, kShelvesMax> shelves_;
  std::atomic<std::size_t> shelf_count_{0};
  std::atomic<std::uint64_t> time_{1};  ///< advances with each registration kept
  std::atomic<CachedRegistration*> dead_{nullptr};
  std::array<Hits, kHitShards> hits_;
  std::array<std::atomic<std::uint64_t>, 3> changed_{};  ///< by MappingChange

  mutable remora::detail::Mutex mutex_;  ///< also held while an index is changed
  std::set<std::pair<std::uint64_t, CachedRegistration*>> order_ REMORA_GUARDED_BY(mutex_);
  RetiredList retired_ REMORA_GUARDED_BY(mutex_);
  /// Without hits, failures and the numbers that changed_ counts.
  MrCacheCounters counters_ REMORA_GUARDED_BY(mutex_);
  std::array<std::uint64_t, kErrnosMax> failures_
      REMORA_GUARDED_BY(mutex_){};  ///< by errno; else [0]
  std::uint64_t invalidations_ REMORA_GUARDED_BY(mutex_) = 0;
  /// Registrations that have no lease and are in no index, but are not deregistered yet.
  std::uint64_t finishing_ REMORA_GUARDED_BY(mutex_) = 0;
  remora::detail::Condition finished_;
  std::atomic<bool> closed_{false};  ///< set with mutex_ held
};

}  // namespace remora::verbs::detail
