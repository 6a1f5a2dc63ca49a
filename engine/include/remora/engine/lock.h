#pragma once

/// A lock in remote memory that a paused holder cannot break.
///
/// One word of a region names the holder. A holder that has not renewed for the lock's ttl is
/// taken for dead, and the lock is taken from it: the region is fenced first
/// (Engine::fence_region), so that whatever the old holder still sends is refused by the server
/// with kAccessRefused and Reason::kFenced. No clocks are compared: a waiter measures the ttl by
/// its own, from when it first saw the word as it is.
///
/// The word, 8 aligned bytes, all zero in a region that is new:
///
/// | bits    | what |
/// |---------|------|
/// | 0 … 23  | owner: a random number that each acquisition and each renewal draws; 0: free |
/// | 24 … 63 | token: how often the lock has been acquired; kept when it is released |
///
/// It changes by compare-and-swap alone. Over shm a client that stands still cannot be fenced, so
/// its lock is not taken (kBusy) until it answers or ends.

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

struct LockOptions {
  /// A holder that neither renews nor releases for so long loses the lock to a waiter. 10 ms
  /// to 1 h; several times what the slowest pause may be, or the region is fenced more often than
  /// it has to.
  std::chrono::nanoseconds ttl = std::chrono::seconds{5};
};

/// A lock that is held. Released by release() or, as well as that can be, by the destructor, which
/// blocks as release() does. Move-only; one thread at a time. One that was moved from answers
/// kClosed, and so does its region(). A child of fork(2) does not hold it and does not release it.
///
/// Nothing renews it in the background: a thread of the library's own would go on to hold a lock
/// whose owner hangs. Call renew() within the ttl, or be done by then.
class Held {
 public:
  ~Held();
  Held(Held&& other) noexcept;
  Held& operator=(Held&& other) noexcept;

  /// The region to use while the lock is held: a grant that is refused as soon as another has taken
  /// the lock. Copies of it are refused then, too.
  [[nodiscard]] const Region& region() const noexcept { return region_; }
  /// Greater than that of every acquisition before.
  [[nodiscard]] std::uint64_t token() const noexcept { return word_ >> kOwnerBits; }
  /// Begins the ttl anew. Blocks, at most an operation's deadline plus two seconds. Errors:
  /// kAccessRefused (Reason::kFenced): another has taken the lock. kIndeterminate and
  /// kConnectionLost: it is unknown; region() still tells.
  Status renew();
  /// Gives the lock up; everything written through region() has completed before. Blocks, at most
  /// an operation's deadline and, where its outcome has to be looked up, two seconds more. Errors:
  /// as renew(); then it is free, or another's, when its ttl is over. So it is where the session
  /// has ended (kConnectionLost): what was under way in it may still land, and the next
  /// holder has to fence.
  Status release();

  static constexpr unsigned kOwnerBits = 24;

 private:
  friend class Lock;
  Held(std::unique_ptr<detail::LockStore> store, std::uint64_t word) noexcept;
  detail::OwnedUnique<detail::LockStore> store_;
  Region region_;       ///< never replaced: the lock may be another's by then
  std::uint64_t word_;  ///< 0: released
};

/// Thread-safe; each acquisition competes with all others, of this process too. Copies share one
/// grant of the region, which is replaced once after it was fenced. A Lock that was moved from
/// answers kClosed.
class Lock {
 public:
  /// The lock at `at`, which no other bytes of the region share. `region` needs Rights::kAtomic;
  /// the grants that this makes have its rights. No I/O. Errors: kNoRight, kMisaligned,
  /// kOutOfRange, kInvalidArgument (ttl), kClosed (`region` was moved from).
  static Result<Lock> open(const Region& region, ByteOffset at, const LockOptions& options = {});

  /// Waits until the lock is free or its holder's ttl is over, for `wait` at most and then for what
  /// is under way. Where the grant has been fenced by another client, the region is opened again,
  /// once for all acquisitions of this lock. Errors: kTimedOut (held by another), kBusy (over shm:
  /// see above), kLimitExceeded (2^40 acquisitions), and what opening and compare_swap give.
  Result<Held> acquire(std::chrono::nanoseconds wait) const;
  /// Once, without waiting. Errors: kWouldBlock (held by another), as acquire().
  Result<Held> try_acquire() const;

 private:
  Lock(std::shared_ptr<detail::LockGrant> grant, ByteOffset at, const LockOptions& options) noexcept
      : grant_{std::move(grant)}, at_{at}, options_{options} {}
  detail::OwnedShared<detail::LockGrant> grant_;
  ByteOffset at_;
  LockOptions options_;
};

}  // namespace remora
