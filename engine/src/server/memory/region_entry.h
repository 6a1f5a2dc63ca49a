#pragma once

/// A region of the server.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <remora/engine/region.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "server/memory/owned_bytes.h"
#include "server/memory/region_journal.h"
#include "server/memory/region_memory.h"

namespace remora::detail {

/// The region's memory goes back to the pool with the last reference. Thread-safe.
class RegionEntry {
 public:
  /// `session_id`: for Lifetime::kSession the session that creates the region; else 0.
  RegionEntry(RegionInfo info, std::shared_ptr<RegionMemory> memory,
              std::shared_ptr<OwnedBytes> owned, std::uint64_t session_id = 0);
  ~RegionEntry();
  RegionEntry(const RegionEntry&) = delete;
  RegionEntry& operator=(const RegionEntry&) = delete;

  [[nodiscard]] RegionInfo info() const;
  [[nodiscard]] const std::string& name() const noexcept { return info_.name; }
  /// The members of info() that never change: all but size, extents, epoch and open count.
  [[nodiscard]] const RegionInfo& fixed_info() const noexcept { return info_; }
  /// The region's present memory: a region that is resized gets another object.
  [[nodiscard]] std::shared_ptr<RegionMemory> memory() const;
  [[nodiscard]] std::uint64_t size_bytes() const { return memory()->size_bytes(); }
  [[nodiscard]] std::uint64_t open_count() const noexcept { return open_count_.load(); }
  [[nodiscard]] std::uint64_t session_id() const noexcept { return session_id_; }
  /// For the journal of the catalog.
  [[nodiscard]] JournaledRegion journaled() const;
  /// The memory is that of the previous process, which had it mapped elsewhere: addresses that
  /// clients hold are not valid any more.
  void set_moved() noexcept { moved_ = true; }
  [[nodiscard]] bool moved() const noexcept { return moved_; }
  /// Clients of the previous process may have the region open, and may return until `until`: it
  /// neither expires nor counts as unused. The caller holds the lock of the catalog.
  void hold(Deadline until) noexcept;
  /// Extends hold() of a region for which it was called, if that ends before `until`.
  void hold_longer(Deadline until) noexcept;
  [[nodiscard]] bool held() const noexcept;

  // Called by Catalog.
  void count_open() noexcept { open_count_.fetch_add(1); }
  void count_close() noexcept;
  /// Whether no session has had the region open for its ttl.
  [[nodiscard]] bool expired() const noexcept;
  void raise_epoch(std::uint64_t epoch) noexcept;
  void set_memory(std::shared_ptr<RegionMemory> memory);
  /// Errors: as Pool::check_shrink().
  [[nodiscard]] Status check_shrink() const;
  /// Records the state that the region will have, before a byte of it is zeroed or released. False:
  /// it could not be recorded, so no byte may be zeroed or released.
  using Record = std::function<bool(const JournaledRegion& after)>;
  /// Errors: as Pool::shrink(); kClosed: `record` returned false.
  Status shrink(Pool& pool, std::uint64_t size_bytes, const Record& record);

 private:
  [[nodiscard]] RegionInfo info_now() const REMORA_REQUIRES(memory_mutex_);
  [[nodiscard]] JournaledRegion journaled_now() const REMORA_REQUIRES(memory_mutex_);
  /// Both are bytes of the pool.
  void count_owned(std::uint64_t before_bytes, std::uint64_t now_bytes) const;

  const RegionInfo info_;
  const std::uint64_t session_id_;
  bool moved_ = false;  ///< does not change once the server accepts clients
  std::shared_ptr<OwnedBytes> owned_;
  /// Locked after the lock of the catalog, and before those of OwnedBytes and of the pool.
  mutable Mutex memory_mutex_;
  std::shared_ptr<RegionMemory> memory_ REMORA_GUARDED_BY(memory_mutex_);
  std::atomic<std::uint64_t> epoch_;
  std::atomic<std::uint64_t> open_count_{0};
  std::atomic<Clock::rep> held_until_{0};
  std::atomic<Clock::rep> idle_since_{Clock::now().time_since_epoch().count()};
};

}  // namespace remora::detail
