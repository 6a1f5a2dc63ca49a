#pragma once

/// Named remote memory that a client has opened.

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <remora/engine/buffer.h>
#include <remora/engine/control.h>
#include <remora/engine/many.h>
#include <remora/engine/queue.h>
#include <remora/engine/types.h>
#include <remora/owned.h>
#include <remora/result.h>

namespace remora {

namespace detail {
class LockGrant;
class ManyRegions;
class RegionGrant;
}  // namespace detail
class AsyncQueue;
class CallbackQueue;
struct ReopenedRegion;

/// The rights of a client on a region that it does not own.
struct RegionAccess {
  std::string client{};  ///< its name, or "*": every client of the server
  Rights rights = Rights::kNone;
  bool admin = false;  ///< may remove, resize and fence the region, and read this list

  friend bool operator==(const RegionAccess&, const RegionAccess&) = default;
};
/// The most entries of an access list.
inline constexpr std::size_t kMaxRegionAccess = 128;

/// When the server removes a region by itself.
enum class Lifetime : std::uint8_t {
  kPersistent,  ///< never: only a removal ends it
  kSession,     ///< with the session that created it
  kTtl          ///< when no client has had it open for its ttl
};
/// "persistent", "session" or "ttl".
[[nodiscard]] constexpr std::string_view to_string(Lifetime lifetime) noexcept {
  switch (lifetime) {
    case Lifetime::kPersistent: return "persistent";
    case Lifetime::kSession: return "session";
    case Lifetime::kTtl: return "ttl";
  }
  return "unknown";
}

/// How a removal treats clients that have the region open.
enum class Removal : std::uint8_t {
  kIfUnused,    ///< not at all: the region is then not removed
  kWhenUnused,  ///< they keep it until they close it; the name is free at once
  kNow          ///< their grants are revoked first, as by a fence, with Reason::kRevoked
};

/// A server's description of a region.
struct RegionInfo {
  std::string name{};
  std::uint64_t size_bytes = 0;   ///< a multiple of block_bytes
  std::uint64_t block_bytes = 0;  ///< the unit of Block
  Rights rights = Rights::kNone;  ///< the most that a grant of it can carry
  std::string atomic_domain{};    ///< "none", "cpu", or the server device's name
  bool shm = false;               ///< clients on the same host may map it
  std::uint64_t epoch = 0;        ///< grows with each fence, and when the region shrinks
  /// Which region of that name, as long as the memory id is the same: a region that was removed and
  /// created again has another incarnation, and none of the bytes. 0: the server is of an older
  /// version, which does not send it.
  std::uint64_t incarnation = 0;
  /// The life of the server's memory to which this description belongs: ServerInfo::memory_id. A
  /// restarted server has another, and regions of the same name and incarnation are new ones there.
  /// 0: not from a server.
  std::uint64_t memory_id = 0;
  std::uint64_t extent_count = 0;  ///< contiguous parts of the pool that it consists of
  std::uint64_t open_count = 0;    ///< grants of the region
  /// The client that created it, if clients have keys; empty: the server itself.
  std::string owner{};
  /// The other clients that may use it. Only stat() by a client that may remove the region returns
  /// it.
  std::vector<RegionAccess> access{};
  Lifetime lifetime = Lifetime::kPersistent;
  std::chrono::milliseconds ttl{0};  ///< of Lifetime::kTtl, otherwise 0
};

/// The parameters of create.
struct RegionSpec {
  std::string name{};                ///< see config::is_region_name()
  std::uint64_t size_bytes = 0;      ///< a multiple of block_bytes, at least one block
  std::uint64_t block_bytes = 4096;  ///< a power of two from 64 B to 16 MiB
  Rights rights = Rights::kAll;      ///< the most that a grant of the region can carry
  /// "none", "cpu" (shm and tcp), the name of a server device, or "auto": the device of the session
  /// if created over rdma, otherwise "cpu".
  std::string atomic_domain = "auto";
  bool shm = false;  ///< clients on the server's host may map it
  /// The rights of other clients, if clients have keys. Empty: only its owner and the server's
  /// admins may use a region that a client creates; every client may use a region that the server's
  /// application creates.
  std::vector<RegionAccess> access{};
  Lifetime lifetime = Lifetime::kPersistent;
  /// For Lifetime::kTtl: 100 ms to 365 days; checked every 250 ms.
  std::chrono::milliseconds ttl{0};
};

/// A region that this process may use: one grant. Copyable handle; the grant ends with the last
/// copy.
///
/// A region that was moved from answers kClosed; its info() is empty, its rights() are none.
///
/// Thread-safe: any number of threads may call the synchronous functions at once.
///
/// Only compare_swap and fetch_add are atomic, and only among themselves: a read that overlaps a
/// write in flight may return any mixture of bytes; an atomic read is fetch_add(at, 0).
class Region {
 public:
  /// For the engine, whose open_region() makes regions.
  explicit Region(std::shared_ptr<detail::RegionGrant> core) noexcept : core_{std::move(core)} {}

  /// The region as the server described it when it was opened: Session::stat() has the present
  /// description. Sends nothing. Valid as long as a copy of this handle.
  [[nodiscard]] const RegionInfo& info() const noexcept;
  /// The bytes that this grant reaches, also after another client has enlarged the region.
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return info().size_bytes; }
  /// The unit of Block; 0: moved from.
  [[nodiscard]] std::uint64_t block_bytes() const noexcept { return info().block_bytes; }
  /// Whole blocks that this grant reaches; 0: moved from.
  [[nodiscard]] std::uint64_t block_count() const noexcept {
    return block_bytes() == 0 ? 0 : size_bytes() / block_bytes();  // 0: moved from
  }
  /// The rights of this grant.
  [[nodiscard]] Rights rights() const noexcept;
  /// The transport of the session; kAuto only if this handle was moved from.
  [[nodiscard]] TransportKind transport() const noexcept;
  /// The reason for the choice of the transport: one line of less than 120 characters, for a log.
  [[nodiscard]] const std::string& transport_reason() const noexcept;
  /// False while the engine connects again (docs/sessions.md), and for good once the session has
  /// ended: every further operation then fails with kConnectionLost, or with kStaleRegion if the
  /// server runs with new memory.
  [[nodiscard]] bool connected() const noexcept;
  /// See Session::settled().
  Status settled(std::chrono::nanoseconds deadline) const;

  /// A new grant of the same region with the same rights, after every older grant, including this
  /// one, has been revoked: see Engine::fence_region. Blocks, at most the engine's control
  /// deadline. Errors: as Engine::fence_region, and kConnectionLost.
  Result<Region> fence() const;

  /// Opens the region of the same URI once more, with the same rights: after kStaleRegion (the
  /// server was restarted), kConnectionLost (the session has ended), kRevoked or kFenced. This
  /// handle does not change. Connects again if the session has ended, and tries for
  /// EngineOptions::connect_for as Engine::open_region does, with the same limits. Errors: as
  /// Engine::open_region.
  Result<ReopenedRegion> reopen() const;

  /// The same as reopen(), fence() and settled() without blocking: see control.h. Each
  /// async_settled() occupies one of EngineOptions::control_threads until it has ended;
  /// `options.deadline` is not used there.
  AsyncControl<Result<ReopenedRegion>> async_reopen(const ControlOptions& options = {}) const;
  /// As fence(): see async_reopen().
  AsyncControl<Result<Region>> async_fence(const ControlOptions& options = {}) const;
  /// As settled(): see async_reopen().
  AsyncControl<Status> async_settled(std::chrono::nanoseconds deadline,
                                     const ControlOptions& options = {}) const;

  /// A queue for one thread, which keeps the region open; see queue.h. Sends nothing.
  /// Errors: kInvalidArgument (depth), kOutOfMemory, kConnectionLost.
  Result<Queue> queue(const QueueOptions& options = {}) const;

  /// A queue for many threads, whose completions call back; see callback_queue.h.
  /// Errors: kInvalidArgument (depth), kOutOfMemory, kConnectionLost, kUnsupported (the engine was
  /// opened without pollers), kSystem (no thread, no descriptor), kLimitExceeded (series).
  Result<CallbackQueue> callback_queue(const QueueOptions& options = {}) const;

  /// This region's operations for coroutines: in an Executor, or on a poller; see async.h.
  [[nodiscard]] AsyncRegion async() const noexcept;

  /// The same with a depth, a deadline, and a choice of where the coroutines continue; see async.h.
  /// Errors: as callback_queue.
  Result<AsyncQueue> async_queue(const QueueOptions& options = {}) const;
  /// `resume`: where coroutines continue. What it refers to is borrowed: see Resume.
  Result<AsyncQueue> async_queue(const QueueOptions& options, const Resume& resume) const;

  /// Synchronous operations. They block until they are done, at most `deadline` (zero: the engine's
  /// default) plus two seconds. 1 byte to the whole region. `into` is memory that may be written,
  /// `from` memory that may be read: nothing checks that (buffer.h). Errors: see
  /// Completion::error().
  Status read(ByteOffset from, Target into, std::chrono::nanoseconds deadline = {}) const;
  /// From the start of the block: as many bytes as `into` has, which may be less or more than one
  /// block.
  Status read(Block from, Target into, std::chrono::nanoseconds deadline = {}) const;
  /// Writes all bytes of `from`. Blocks, as read().
  Status write(ByteOffset to, Source from, std::chrono::nanoseconds deadline = {}) const;
  /// As above, from the start of the block.
  Status write(Block to, Source from, std::chrono::nanoseconds deadline = {}) const;
  /// A contiguous part of the region, in pieces of local memory: the first piece gets the first
  /// bytes. 1 … kMaxPieces pieces, none of them empty; each is posted as a request of its own, all
  /// with one doorbell. Errors: also kLimitExceeded (kMaxPieces).
  Status read(ByteOffset from, std::span<const Target> into,
              std::chrono::nanoseconds deadline = {}) const;
  /// As the read in pieces; the local memory is only read.
  Status write(ByteOffset to, std::span<const Source> from,
               std::chrono::nanoseconds deadline = {}) const;
  /// A write after which the server notifies its application: when the bytes are in place, the
  /// handler of Server::on_notify gets offset, length and `notice`. Returns when the server has the
  /// notice; the handler may run later. kIndeterminate: the write or the notice, or both, may be
  /// lost.
  Status write_notify(ByteOffset to, Source from, std::uint32_t notice,
                      std::chrono::nanoseconds deadline = {}) const;
  /// As a write of this many zeroes, without a buffer: over tcp and shm no bytes are sent.
  Status write_zeroes(ByteOffset at, std::uint64_t length_bytes,
                      std::chrono::nanoseconds deadline = {}) const;
  /// Returns when every write of this session that had completed before is visible to the server's
  /// processor and to all of its devices. Without it, a completed write is visible to later
  /// operations of the same session; over tcp and shm to every client. Needs Rights::kRead. How: a
  /// read that follows writes on the same queue pair completes after they are in memory.
  Status flush_visible(std::chrono::nanoseconds deadline = {}) const;
  /// Changes 8 bytes, 8-byte aligned, if they equal `expected`. Needs Rights::kAtomic, and works in
  /// the region's atomic domain only. Returns the value before: equal to `expected` means swapped.
  /// Errors: also kMisaligned, kWrongAtomicDomain.
  Result<std::uint64_t> compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                                     std::chrono::nanoseconds deadline = {}) const;
  /// As compare_swap(), but adds `delta`; the sum wraps at 2^64. Returns the value before.
  Result<std::uint64_t> fetch_add(ByteOffset at, std::uint64_t delta,
                                  std::chrono::nanoseconds deadline = {}) const;

  /// Up to kMaxMany operations in one call, each with its own outcome; many.h has the rules. No
  /// pairs: ok. They block until all have ended, at most the deadline of the options plus two
  /// seconds. Errors of the call as a whole, before anything is sent: kLimitExceeded (kMaxMany),
  /// kInvalidArgument (the number of `each`), kOutOfMemory. Else the error of the first failed
  /// pair, as Completion::error(), with the pair's index in its subject.
  Status read_many(std::span<const ReadPair> pairs, const ManyOptions& options = {}) const;
  /// As read_many(); the local memory of a pair is only read.
  Status write_many(std::span<const WritePair> pairs, const ManyOptions& options = {}) const;
  /// The old values are in the pairs.
  Status fetch_add_many(std::span<FetchAddPair> pairs, const ManyOptions& options = {}) const;
  /// As fetch_add_many(), with the rules of compare_swap() for each pair.
  Status compare_swap_many(std::span<CompareSwapPair> pairs, const ManyOptions& options = {}) const;

 private:
  friend class detail::LockGrant;
  friend class detail::ManyRegions;
  friend class Queue;
  detail::OwnedShared<detail::RegionGrant> core_;
};

/// The result of Region::reopen().
struct ReopenedRegion {
  Region region;
  /// The memory is the same as before, with all bytes written to it. False: it is a new region of
  /// the same name, or the server has new memory or does not tell; it began as zeros, and another
  /// client may have written to it since.
  bool same_contents = false;
};

}  // namespace remora
