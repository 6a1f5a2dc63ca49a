#pragma once

/// The regions of a server as the next process needs them, and the journal that records each
/// change.

#include <cstdint>
#include <span>
#include <vector>

#include <remora/engine/region.h>
#include <remora/result.h>

#include "server/memory/pool_share.h"

namespace remora::detail {

/// One region, without its grants.
struct JournaledRegion {
  RegionInfo info{};
  std::uint64_t session_id = 0;       ///< of Lifetime::kSession: the session that created it
  std::vector<PoolExtent> extents{};  ///< in order
  int memory_fd = -1;                 ///< its own memfd (shm), or -1
  const std::byte* memory = nullptr;  ///< where that is mapped
};

/// Records each change before the change is answered.
class RegionJournal {
 public:
  virtual ~RegionJournal() = default;
  RegionJournal() = default;
  RegionJournal(const RegionJournal&) = delete;
  RegionJournal& operator=(const RegionJournal&) = delete;

  /// Keeps the memfd of a region that is about to be created, so that record() can name it. Called
  /// without the lock of the catalog; may block for some seconds. Errors: kLimitExceeded: the
  /// region must not be created.
  virtual Status keep(std::uint64_t incarnation, int memory_fd) = 0;
  /// Records all regions as they are now. No later region gets an epoch below `next_epoch`. Called
  /// with the lock of the catalog. The journal reports a failure itself: then it keeps nothing for
  /// the next process. False: the memory is left to the next process, which finds the regions as
  /// they were recorded before; no byte of them may be zeroed any more.
  virtual bool record(std::span<const JournaledRegion> regions,
                      std::uint64_t next_epoch) noexcept = 0;
  /// There was no memory for the list of regions: the last record is out of date.
  virtual void record_nothing() noexcept = 0;
};

}  // namespace remora::detail
