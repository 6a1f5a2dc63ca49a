#pragma once

/// MrCache: registrations kept for memory that is not the library's own.
///
/// `acquire` gives a lease of a registration that covers the requested bytes: an existing one (a
/// hit), or a new one that stays for the next use (a miss). The registration lives at least as long
/// as its leases. Budgets are never exceeded: to stay within them, idle registrations are evicted,
/// the least recently used first.
///
/// A registration pins pages, and keeps them after the program unmaps them: memory that is mapped
/// at the address later is other memory. With Invalidation::kAutomatic the kernel reports each
/// change of a mapping (userfaultfd), and a hit is never a registration made before the last
/// change. Memory whose changes the kernel does not report (files, shared memory, System V
/// segments) is registered for each lease separately and not kept, as is all memory if the kernel
/// reports no changes: see `automatic()` and `why_not_automatic()`. MADV_GUARD_INSTALL (Linux 6.13)
/// is not noticed. Memory that was acquired once stays registered with the library's userfaultfd:
/// an application's own UFFDIO_REGISTER there answers EBUSY. docs/mr-cache.md has the details.
///
/// Thread safety: all calls of one MrCache concurrently; it is destroyed when no call is in
/// progress. Leases may outlive it, and may be dropped by any thread. In a child of fork(2)
/// `acquire` of the parent's cache answers kClosed with Reason::kForked, and the copies deregister
/// nothing.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <string_view>
#include <utility>

#include <remora/owned.h>
#include <remora/result.h>
#include <remora/verbs/access.h>
#include <remora/verbs/deadline.h>
#include <remora/verbs/format.h>
#include <remora/verbs/protection_domain.h>
#include <remora/verbs/slice.h>

namespace remora::verbs {

namespace detail {
class MrCacheCore;
struct CachedRegistration;
}  // namespace detail

/// How the cache learns that a mapping changes.
enum class Invalidation : std::uint8_t {
  kAutomatic,  ///< changes of mappings are noticed; otherwise nothing is kept
  kExplicit,   ///< the caller calls invalidate() before it changes a mapping: cheaper hits
};
/// The reason in words, for messages.
[[nodiscard]] std::string_view to_string(Invalidation invalidation) noexcept;

/// How acquire() treats memory that cannot be kept.
enum class Unkept : std::uint8_t {
  kRegister,  ///< it is registered, for the one lease
  kRefuse,    ///< acquire() answers kUnsupported, and registers nothing
};
/// The reason in words, for messages.
[[nodiscard]] std::string_view to_string(Unkept unkept) noexcept;

/// The budgets and policies of a cache.
struct MrCacheOptions {
  /// Pinned by this cache in whole pages, leases included.
  std::uint64_t bytes_max = std::uint64_t{1} << 32U;
  std::uint64_t registrations_max = 4096;  ///< each piece counts
  /// Longer ranges are registered in pieces of this length, aligned to it, several at a time. A
  /// power of two of at least one page; a multiple of 2 MiB keeps huge pages whole.
  std::uint64_t piece_bytes = std::uint64_t{64} << 20U;
  Invalidation invalidation = Invalidation::kAutomatic;
  Unkept unkept = Unkept::kRegister;
};

/// Numbers at about one moment; each is exact, together they may not be.
struct MrCacheCounters {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;         ///< acquires that registered, kept or not
  std::uint64_t unkept = 0;         ///< of the misses: registered for one lease only
  std::uint64_t refused = 0;        ///< acquires of memory that is not kept (Unkept::kRefuse)
  std::uint64_t evictions = 0;      ///< registrations evicted for the budgets
  std::uint64_t superseded = 0;     ///< registrations that a longer one has replaced
  std::uint64_t unmapped = 0;       ///< invalidated by munmap, or by another mapping
  std::uint64_t remapped = 0;       ///< by mremap
  std::uint64_t removed = 0;        ///< by MADV_DONTNEED, MADV_FREE, MADV_REMOVE
  std::uint64_t explicitly = 0;     ///< by invalidate()
  std::uint64_t registrations = 0;  ///< ibv_reg_mr that succeeded
  std::uint64_t pinned_bytes = 0;   ///< now
  std::uint64_t pinned_registrations = 0;  ///< now
  std::map<int, std::uint64_t> failures;  ///< verbs calls that failed, by errno; 0: none of Linux's
};
/// "hits 90 misses 10 ... pinned 4096 bytes in 1 registrations errno 12 2 times": one line.
std::ostream& operator<<(std::ostream& out, const MrCacheCounters& counters);

/// A part of a lease that one registration covers.
struct MrPiece {
  std::uint64_t address;
  std::uint64_t length_bytes;
  std::uint32_t lkey;
  std::uint32_t rkey;
};
/// "4096 bytes at 0x7f... rkey 6 lkey 5".
std::ostream& operator<<(std::ostream& out, const MrPiece& piece);

/// The right to use a registration of some bytes, which it keeps until it is dropped. Owns no
/// bytes. Must outlive every posted request that names its keys. Thread safety: a value with one
/// owner.
class MrLease {
 public:
  /// An empty lease.
  MrLease() noexcept = default;
  MrLease(MrLease&& other) noexcept
      : registration_{std::exchange(other.registration_, nullptr)},
        bytes_{std::exchange(other.bytes_, {})} {}
  MrLease& operator=(MrLease&& other) noexcept {
    MrLease old{std::move(*this)};
    registration_ = std::exchange(other.registration_, nullptr);
    bytes_ = std::exchange(other.bytes_, {});
    return *this;
  }
  MrLease(const MrLease&) = delete;
  MrLease& operator=(const MrLease&) = delete;
  ~MrLease() { drop(); }

  /// True: it holds no registration.
  [[nodiscard]] bool empty() const noexcept { return registration_ == nullptr; }
  /// The requested bytes; the registration may be longer.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  /// 1, unless the range is longer than MrCacheOptions::piece_bytes; 0 when empty.
  [[nodiscard]] std::size_t piece_count() const noexcept;
  /// In the order of addresses, without gaps, limited to bytes(). `index` < piece_count().
  [[nodiscard]] MrPiece piece(std::size_t index) const noexcept;
  /// Bytes of one piece as a slice for a request; invalid if they are not all in one piece.
  [[nodiscard]] LocalSlice slice(std::uint64_t offset_bytes,
                                 std::uint64_t length_bytes) const noexcept;
  /// Ends the lease. A registration that is not kept is deregistered here.
  void drop() noexcept;
  /// The same, but a thread of the library deregisters, if that is needed (there is one with
  /// automatic invalidation). For callers for which others wait.
  void drop_soon() noexcept;

  /// The lease as a word, for records that hold no types of this library; then this lease is empty.
  /// Null if it was empty already. A word that is never passed to attach() keeps its registration
  /// until the process ends.
  [[nodiscard]] void* detach() noexcept {
    bytes_ = {};
    return std::exchange(registration_, nullptr);
  }
  /// The lease of a word from detach(), to be called once, with the bytes of that lease.
  [[nodiscard]] static MrLease attach(void* word, std::span<std::byte> bytes) noexcept {
    return MrLease{static_cast<detail::CachedRegistration*>(word), bytes};
  }
  /// Device::gone() for a word from detach(), which stays valid.
  [[nodiscard]] static bool device_gone(const void* word) noexcept;

 private:
  friend class detail::MrCacheCore;
  MrLease(detail::CachedRegistration* registration, std::span<std::byte> bytes) noexcept
      : registration_{registration}, bytes_{bytes} {}
  [[nodiscard]] std::size_t first_piece() const noexcept;

  detail::CachedRegistration* registration_ = nullptr;
  std::span<std::byte> bytes_;
};

/// See the top of this file. Move-only.
class MrCache {
 public:
  /// A cache for the memory of `domain`, which it keeps. Errors: kInvalidArgument (an empty domain,
  /// a budget of 0, piece_bytes no power of two or less than a page); kLimitExceeded (more than 64
  /// automatic caches in the process).
  [[nodiscard]] static Result<MrCache> create(const ProtectionDomain& domain,
                                              const MrCacheOptions& options = {});
  MrCache(MrCache&&) noexcept = default;
  MrCache& operator=(MrCache&& other) noexcept;
  MrCache(const MrCache&) = delete;
  MrCache& operator=(const MrCache&) = delete;
  /// Deregisters all registrations without a lease; the others end with their leases.
  ~MrCache();

  /// A registration of `bytes` for exactly `access`. A hit takes no lock and does not block; a miss
  /// blocks while pages are pinned. Without a remote right a new registration is widened to whole
  /// pages; a hit with remote rights may be part of a longer range that was acquired with them
  /// before; its rkey reaches the whole range.
  ///
  /// The deadline is checked between pieces, and while room in the budgets is being made. Errors:
  /// kInvalidArgument (empty, wraps around, kZeroBased, rights that need kLocalWrite); kUnsupported
  /// (Unkept::kRefuse, and changes of this memory are not noticed); kLimitExceeded (larger than a
  /// budget: asked() and allowed()); kOutOfMemory (leases hold the budget: asked() and allowed();
  /// or as of MemoryRegion::register_bytes); kTimedOut; kClosed (a forked child); kSystem (no
  /// thread to register in parallel); kProvider (errno kept).
  [[nodiscard]] Result<MrLease> acquire(std::span<std::byte> bytes, Access access,
                                        Deadline deadline = Deadline::max());

  /// As acquire() for a hit; empty if it would be a miss. Registers nothing, takes no lock.
  [[nodiscard]] MrLease find(std::span<std::byte> bytes, Access access) noexcept;

  /// Deregisters all registrations without a lease, and returns their number: makes room under the
  /// process's own limits (memlock) for other registrations.
  std::size_t trim() noexcept;

  /// Registrations that touch `bytes` get no more leases; idle ones are deregistered now, leased
  /// ones with their last lease. Returns how many there were. For mappings whose changes are not
  /// noticed: call it before the change.
  std::size_t invalidate(std::span<std::byte> bytes);

  /// Whether changes of mappings are noticed, so that memory is kept registered.
  [[nodiscard]] bool automatic() const noexcept;
  /// The reason why not, as text; empty when automatic().
  [[nodiscard]] std::string_view why_not_automatic() const noexcept;
  /// Takes the cache's lock and allocates.
  [[nodiscard]] MrCacheCounters counters() const;

 private:
  explicit MrCache(std::shared_ptr<detail::MrCacheCore> core) noexcept : core_{std::move(core)} {}
  remora::detail::OwnedShared<detail::MrCacheCore> core_;
};

}  // namespace remora::verbs
