#pragma once

/// The algorithm of a Lock, independent of where its word is.

#include <chrono>
#include <cstdint>

#include <remora/engine/region.h>
#include <remora/result.h>

#include "base/clock.h"

namespace remora::detail {

/// The word of a lock, as one contender accesses it. One thread at a time.
class LockStore {
 public:
  virtual ~LockStore() = default;
  [[nodiscard]] virtual const Region& region() const noexcept = 0;
  /// The place of the word in the region, for errors.
  [[nodiscard]] virtual ByteOffset at() const noexcept { return {}; }
  virtual Result<std::uint64_t> read_word() noexcept = 0;
  /// Returns the value before.
  virtual Result<std::uint64_t> swap(std::uint64_t expected, std::uint64_t desired) noexcept = 0;
  /// Replaces a grant that the server no longer accepts: by a grant that another user of the lock
  /// has opened meanwhile, else by a new one. Blocks until `deadline`, or for a second.
  virtual Status reopen(Deadline deadline) noexcept = 0;
  /// Gets a new grant after all others were revoked. Sends one control request and blocks as it
  /// does.
  virtual Status fence() noexcept = 0;
  /// Called when the lock is acquired. From now on reopen() waits until no operation of the grant
  /// before can take effect: otherwise another contender could acquire a lock that is free, without
  /// a fence, and then see late writes of this one. reopen() may fail as Session::settled().
  virtual void hold() noexcept {}
};

/// Acquires the lock for an owner number that no other contender has. Returns the word of the
/// acquired lock. `wait` 0: does not wait.
Result<std::uint64_t> acquire_lock(LockStore& store, std::chrono::nanoseconds ttl,
                                   std::chrono::nanoseconds wait) noexcept;
/// Changes the word of a lock that this contender has. `unsure`: an earlier attempt, with an
/// unknown outcome, may have changed it already. Errors: kAccessRefused with kFenced: another
/// contender has the lock.
Status change_lock(LockStore& store, std::uint64_t word, std::uint64_t desired, Deadline deadline,
                   bool unsure = false) noexcept;
/// The word with the same token and another owner.
std::uint64_t renewed_lock(std::uint64_t word) noexcept;
/// The word with the same token and no owner.
std::uint64_t released_lock(std::uint64_t word) noexcept;

}  // namespace remora::detail
