#pragma once

/// A lock in remote memory that a paused holder cannot break.
///
/// One word of a region names the holder. A holder that has not renewed for the lock's ttl counts
/// as dead, and another client takes the lock: that client fences the region first
/// (Engine::fence_region), so that the server refuses all later requests of the old holder with
/// kAccessRefused and Reason::kFenced. No clocks are compared: a waiter measures the ttl by its own
/// clock, from the time at which it first saw the present word.
///
/// The word, 8 aligned bytes, all zero in a new region:
///
/// | bits    | what |
/// |---------|------|
/// | 0 … 23  | owner: a random number that each acquisition and each renewal draws; 0: free |
/// | 24 … 63 | token: how often the lock has been acquired; kept when it is released |
///
/// Only compare-and-swap changes it. Over shm the server cannot fence a client that does not run,
/// so its lock is not taken until it answers or ends. A waiter repeats the fence meanwhile.

#include <chrono>
#include <cstdint>
#include <memory>

#include <remora/engine/region.h>
#include <remora/engine/types.h>
#include <remora/owned.h>
#include <remora/result.h>

namespace remora {

namespace detail {
class LockGrant;
class LockStore;
}  // namespace detail

/// The options of a lock. All clients of one lock should use the same.
struct LockOptions {
  /// A holder that neither renews nor releases for this time loses the lock to a waiter. 10 ms to 1
  /// h; choose several times the longest expected pause, or the region is fenced more often than
  /// necessary.
  std::chrono::nanoseconds ttl = std::chrono::seconds{5};
};

/// A lock that is held. Released by release() or, best effort, by the destructor, which blocks as
/// release() does. Move-only; one thread at a time. A Held that was moved from answers kClosed, and
/// so does its region(). A child of fork(2) neither holds nor releases it.
///
/// The library does not renew it in the background: its thread would keep a lock whose owner hangs.
/// Call renew() within the ttl, or release it by then.
class Held {
 public:
  /// As release(), without its result.
  ~Held();
  Held(Held&& other) noexcept;
  /// Releases the lock that this object had, as the destructor does.
  Held& operator=(Held&& other) noexcept;

  /// The region to use while the lock is held: its grant is refused as soon as another holder has
  /// taken the lock. So are copies of it.
  [[nodiscard]] const Region& region() const noexcept { return region_; }
  /// Greater than the token of every earlier acquisition.
  [[nodiscard]] std::uint64_t token() const noexcept { return word_ >> kOwnerBits; }
  /// Restarts the ttl. Blocks, at most an operation's deadline plus two seconds. Errors:
  /// kAccessRefused (Reason::kFenced): another holder has taken the lock. kIndeterminate and
  /// kConnectionLost: it is unknown; an operation on region() shows it.
  Status renew();
  /// Releases the lock; all writes through region() must have completed before. The next holder
  /// sees them. Blocks, at most an operation's deadline (two of them over rdma with several lanes,
  /// for Region::flush_visible()) and, if the outcome must be looked up, two seconds more. Errors:
  /// as renew(); after an error the lock is free, or another holder's, when its ttl is over. This
  /// is also so if the session has ended (kConnectionLost): its unfinished operations may still
  /// take effect, so the next holder must fence.
  Status release();

  /// The bits of the word that name the owner: see the top of this file.
  static constexpr unsigned kOwnerBits = 24;

 private:
  friend class Lock;
  Held(std::unique_ptr<detail::LockStore> store, std::uint64_t word) noexcept;
  detail::OwnedUnique<detail::LockStore> store_;
  Region region_;       ///< never replaced: another holder may have the lock by then
  std::uint64_t word_;  ///< 0: released
};

/// Thread-safe; each acquisition competes with all others, also of this process. Copies share one
/// grant of the region, which is replaced once after it was fenced. A Lock that was moved from
/// answers kClosed.
class Lock {
 public:
  /// The lock at `at`; the application uses these 8 bytes for nothing else. `region` needs
  /// Rights::kAtomic; grants that the lock makes have its rights. Sends nothing. Errors: kNoRight,
  /// kMisaligned, kOutOfRange, kInvalidArgument (ttl), kClosed (`region` was moved from).
  static Result<Lock> open(const Region& region, ByteOffset at, const LockOptions& options = {});

  /// Waits until the lock is free or its holder's ttl is over, for `wait` at most, and then until
  /// the present step ends. If another client has fenced the grant, the region is opened again,
  /// once for all acquisitions of this lock. Errors: kTimedOut (another holder has it), kBusy (over
  /// shm: the holder does not run), kLimitExceeded (2^40 acquisitions), and those of opening and
  /// compare_swap.
  Result<Held> acquire(std::chrono::nanoseconds wait) const;
  /// As acquire(), with one attempt and without waiting. Errors: kWouldBlock (another holder has
  /// it), those of acquire().
  Result<Held> try_acquire() const;

 private:
  Lock(std::shared_ptr<detail::LockGrant> grant, ByteOffset at, const LockOptions& options) noexcept
      : grant_{std::move(grant)}, at_{at}, options_{options} {}
  detail::OwnedShared<detail::LockGrant> grant_;
  ByteOffset at_;
  LockOptions options_;
};

}  // namespace remora
