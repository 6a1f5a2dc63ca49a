#pragma once

/// How a Lock is acquired, apart from where its word is.

#include <chrono>
#include <cstdint>

#include <remora/engine/region.h>
#include <remora/result.h>

#include "base/clock.h"

namespace remora::detail {

/// The word of a lock, by one contender.
class LockStore {
 public:
  virtual ~LockStore() = default;
  [[nodiscard]] virtual const Region& region() const noexcept = 0;
  /// Where in the region it is; for errors.
  [[nodiscard]] virtual ByteOffset at() const noexcept { return {}; }
  virtual Result<std::uint64_t> read_word() noexcept = 0;
  /// What stood there before.
  virtual Result<std::uint64_t> swap(std::uint64_t expected, std::uint64_t desired) noexcept = 0;
  /// Another grant instead of one that the server no longer accepts: one that another user of the
  /// same lock has opened meanwhile, else a new one. Blocks until `deadline`, or a second.
  virtual Status reopen(Deadline deadline) noexcept = 0;
  /// The same when all others have gone. Blocks as a control request; asks once.
  virtual Status fence() noexcept = 0;
  /// The lock is ours from now on: another grant comes only when nothing that was under way by the
  /// one before can take effect any more. Else the next one would take a lock that is free, without
  /// a fence, and find late writes of ours. reopen() then fails as Session::settled().
  virtual void hold() noexcept {}
};

/// Acquires the lock for an owner number that no other contender has; the word it has then. `wait`
/// 0: does not.
Result<std::uint64_t> acquire_lock(LockStore& store, std::chrono::nanoseconds ttl,
                                   std::chrono::nanoseconds wait) noexcept;
/// Changes a word that is ours. `unsure`: it may have been changed so already, by an attempt whose
/// outcome is not known. Errors: kAccessRefused (kFenced): it is not ours.
Status change_lock(LockStore& store, std::uint64_t word, std::uint64_t desired, Deadline deadline,
                   bool unsure = false) noexcept;
/// The same token, another owner.
std::uint64_t renewed_lock(std::uint64_t word) noexcept;
/// The same token, no owner.
std::uint64_t released_lock(std::uint64_t word) noexcept;

}  // namespace remora::detail
