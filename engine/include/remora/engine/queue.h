#pragma once

/// A queue of operations on a region, or on several of one session: fill, `submit()` (one
/// doorbell), `wait(n)`.
///
/// One owner: a queue and its completions belong to one thread at a time. Several queues, also of
/// one region, may be used from several threads at once. A call of submit(), wait(), poll(),
/// progress() or cancel() during another such call of the same queue, in another thread, is refused
/// with kBusy and changes nothing. The queue does not notice concurrent calls that take operations,
/// nor threads that use it in turn without synchronization.
///
/// Operations in flight are unordered among each other. Each operation that was taken ends exactly
/// once, as a Completion, within its deadline plus two seconds. One exception, over rdma: a device
/// that does not flush a broken lane may still write to the buffers, so the operation ends when its
/// queue pair is destroyed.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <remora/engine/buffer.h>
#include <remora/engine/many.h>
#include <remora/engine/types.h>
#include <remora/owned.h>
#include <remora/result.h>

namespace remora {

namespace detail {
class CallbackCore;
class QueueCore;
struct QueueEntry;

/// The capacity of a queue.
struct QueueRoom {
  std::size_t depth = 0;
  std::size_t left = 0;  ///< the depth less the operations in the queue
};
struct CompletionValues;
}  // namespace detail
class Region;

/// The options of a queue, of whichever kind.
struct QueueOptions {
  /// The most operations that are taken and not yet handed back, 1 … kMaxQueueDepth.
  std::size_t depth = 64;
  /// Time from submit() to completion; zero: the engine's default. See kDeadlineFloor.
  std::chrono::nanoseconds deadline{0};
};
/// The largest QueueOptions::depth.
inline constexpr std::size_t kMaxQueueDepth = 65536;

/// Names one operation of one queue, and no other operation that uses the same place in the table
/// later.
class Ticket {
 public:
  /// The ticket of no operation: false.
  constexpr Ticket() noexcept = default;
  /// For queues. `generation`: 1 or more.
  constexpr Ticket(std::uint32_t index, std::uint32_t generation) noexcept
      : word_{std::uint64_t{index} << 32U | generation} {}
  /// False: the operation was not taken, since the queue is full or closed.
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return generation() != 0; }
  friend constexpr bool operator==(Ticket, Ticket) noexcept = default;
  /// Its place in the queue's table, and how often that place was used.
  [[nodiscard]] constexpr std::uint32_t index() const noexcept {
    return static_cast<std::uint32_t>(word_ >> 32U);
  }
  /// Uses of that place, from 1 on; 0: no operation.
  [[nodiscard]] constexpr std::uint32_t generation() const noexcept {
    return static_cast<std::uint32_t>(word_);
  }
  /// The ticket of the next operation in the same place.
  [[nodiscard]] constexpr Ticket next() const noexcept {
    Ticket next;
    next.word_ = word_ + 1;
    // Generation 0 means "no ticket".
    return next ? next : Ticket{index(), 1};
  }

 private:
  std::uint64_t word_ = 0;  ///< index and generation: one register, one store
};

class Completion;
namespace detail {
/// Copies the data of each completion, for interfaces that return them in an array; returns whether
/// all are ok.
bool read_values(std::span<const Completion> completions, CompletionValues* into) noexcept;
}  // namespace detail

/// The outcome of one operation. Belongs to the Completions that contain it, or to the callback
/// that gets it (callback_queue.h), and ends with them; so does the operation's slot, unless it is
/// moved out.
class Completion {
 public:
  /// True: the operation has taken effect.
  [[nodiscard]] bool ok() const noexcept { return ok_; }
  /// Only when !ok(). kTimedOut, kCancelled, kConnectionLost, kStaleRegion: certainly without
  /// remote effect. kIndeterminate: a write or an atomic whose effect cannot be known.
  /// kAccessRefused: refused by the server's side. kProvider, kOutOfMemory: the local buffer could
  /// not be registered or reached (errno, or the completion status, says why). kOutOfRange,
  /// kMisaligned, kNoRight, kWrongAtomicDomain, kInvalidArgument: misuse, noticed before anything
  /// was sent. The error names server, region, offset and length; reason() says which argument is
  /// wrong, or why the operation ended. If the connection has just ended, waits until the server's
  /// last message has been read, for 50 ms at most.
  [[nodiscard]] Error error() const noexcept;
  /// The ticket that the queue gave for the operation.
  [[nodiscard]] Ticket ticket() const noexcept;
  /// The number that the caller gave with the operation.
  [[nodiscard]] std::uint64_t tag() const noexcept;
  /// The value before a compare-and-swap or fetch-and-add. Only when ok().
  [[nodiscard]] std::uint64_t old_value() const noexcept;
  /// The slot of the operation; empty if it had none. Move it out to keep it longer than the
  /// completion.
  [[nodiscard]] Slot& slot() noexcept;

 private:
  friend class detail::CallbackCore;
  friend class detail::QueueCore;
  friend bool detail::read_values(std::span<const Completion> completions,
                                  detail::CompletionValues* into) noexcept;
  Completion() noexcept = default;  ///< empty: a queue makes it and fills it in
  detail::QueueEntry* entry_ = nullptr;
  bool ok_ = false;
};

namespace detail {
/// The data of one completion.
struct CompletionValues {
  std::uint64_t tag = 0;
  Ticket ticket{};
  std::uint64_t old_value = 0;
  std::uint64_t outcome = 0;  ///< 0; not ok(): the reader sets it
};
}  // namespace detail

/// The result of wait(): a range of completions, which end (and return their slots) with it. The
/// next wait() or poll() of the queue ends it, too.
class Completions {
 public:
  /// `queue`: null if the call was refused.
  Completions(detail::QueueCore* queue, std::span<Completion> found, std::uint64_t serial) noexcept
      : queue_{queue}, found_{found}, serial_{serial} {}
  ~Completions();
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  /// The first completion. Valid as long as this object.
  [[nodiscard]] Completion* begin() const noexcept { return found_.data(); }
  /// Behind the last completion.
  [[nodiscard]] Completion* end() const noexcept { return found_.data() + found_.size(); }
  /// Number of completions.
  [[nodiscard]] std::size_t size() const noexcept { return found_.size(); }
  /// True: there is none.
  [[nodiscard]] bool empty() const noexcept { return found_.empty(); }
  /// Whether the call was carried out. Errors: kBusy (another thread was in a call of the same
  /// queue, which has one owner: this call did not wait, and no completion is lost); kClosed (the
  /// queue was moved from).
  [[nodiscard]] Status status() const noexcept;

 private:
  detail::QueueCore* queue_;
  std::span<Completion> found_;
  std::uint64_t serial_;
};

/// See the top of this file. Made by Region::queue(). The destructor submits nothing more, waits
/// for the operations in flight (at most their deadline plus two seconds) and drops the results.
///
/// A queue that was moved from takes no operations (its tickets are false, a slot stays with the
/// caller), and its other functions answer kClosed; its depth() is 0, its next_deadline()
/// time_point::max().
class Queue {
 public:
  /// For Region::queue().
  explicit Queue(std::unique_ptr<detail::QueueCore> core) noexcept;
  ~Queue();
  Queue(Queue&&) noexcept;
  /// Ends the queue that this object had, as the destructor does.
  Queue& operator=(Queue&&) noexcept;

  /// Takes one operation; it is posted by the next submit(). The ticket is false when the queue is
  /// full (no operation was taken: a slot stays with the caller). All other misuse is reported by a
  /// completion. `tag` comes back with the completion. Never allocates, and blocks only while
  /// registered memory is registered with another device for the first time. `into` is memory that
  /// may be written, `from` memory that may be read: nothing checks that (buffer.h).
  Ticket read(ByteOffset from, Target into, std::uint64_t tag = 0) noexcept {
    return read_bytes(from, into.bytes().data(), into.bytes().size(), into.memory(), tag);
  }
  /// From the start of the block: as many bytes as `into` has.
  Ticket read(Block from, Target into, std::uint64_t tag = 0) noexcept;
  /// Fills the whole slot. The slot comes back with the completion.
  Ticket read(ByteOffset from, Slot&& into, std::uint64_t tag = 0) noexcept;
  /// Fills the whole slot, from the start of the block. The slot comes back with the completion.
  Ticket read(Block from, Slot&& into, std::uint64_t tag = 0) noexcept;
  /// Writes all bytes of `from`, which is borrowed until the completion.
  Ticket write(ByteOffset to, Source from, std::uint64_t tag = 0) noexcept {
    return write_bytes(to, from.bytes().data(), from.bytes().size(), from.memory(), tag);
  }
  /// As above, from the start of the block.
  Ticket write(Block to, Source from, std::uint64_t tag = 0) noexcept;
  /// Writes the whole slot. The slot comes back with the completion.
  Ticket write(ByteOffset to, Slot&& from, std::uint64_t tag = 0) noexcept;
  /// Writes the whole slot, from the start of the block. The slot comes back with the completion.
  Ticket write(Block to, Slot&& from, std::uint64_t tag = 0) noexcept;
  /// A contiguous part of the region in pieces of local memory; see Region::read. The array of
  /// pieces is borrowed like the memory: until the operation has completed.
  Ticket read(ByteOffset from, std::span<const Target> into, std::uint64_t tag = 0) noexcept;
  /// As the read in pieces; the local memory is only read.
  Ticket write(ByteOffset to, std::span<const Source> from, std::uint64_t tag = 0) noexcept;
  /// See Region::write_notify. Over shm submit() blocks until the server has taken the notice.
  Ticket write_notify(ByteOffset to, Source from, std::uint32_t notice,
                      std::uint64_t tag = 0) noexcept;
  /// See Region::write_zeroes.
  Ticket write_zeroes(ByteOffset at, std::uint64_t length_bytes, std::uint64_t tag = 0) noexcept;
  /// Completes when every write of this session that had completed before submit() is visible to
  /// the server's processor and all of its devices: call barrier() before it to include those of
  /// this queue. On a session of several lanes it covers only this queue's writes. See
  /// Region::flush_visible.
  Ticket flush_visible(std::uint64_t tag = 0) noexcept;
  /// 8 bytes, 8-byte aligned, in the region's atomic domain. The value before is the
  /// old_value() of the completion: equal to `expected` means swapped.
  Ticket compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                      std::uint64_t tag = 0) noexcept;
  /// As compare_swap(), but adds `delta`; the sum wraps at 2^64.
  Ticket fetch_add(ByteOffset at, std::uint64_t delta, std::uint64_t tag = 0) noexcept;

  /// Takes all pairs as one operation, with one ticket, and one completion when all of them have
  /// ended: it is ok when every pair is ok; otherwise its error() is that of the first failed pair
  /// in the array, with its index in the subject. many.h has the rules for pairs; the deadline is
  /// that of the queue. `each`: empty, or as many as pairs; gets their outcomes. Old values of
  /// atomics are in the pairs. `each` and the pairs of atomics are borrowed until the completion,
  /// the pairs of reads and writes for the call only. Each pair needs a place of the queue until it
  /// has ended, so up to depth() pairs can be taken. The ticket is false, and no pair was taken, if
  /// there is no room for all of them, if there are none, or if `each` has another number. cancel()
  /// cancels all pairs or none.
  Ticket read_many(std::span<const ReadPair> pairs, std::span<ManyOutcome> each = {},
                   std::uint64_t tag = 0) noexcept;
  /// As read_many(); the local memory of a pair is only read.
  Ticket write_many(std::span<const WritePair> pairs, std::span<ManyOutcome> each = {},
                    std::uint64_t tag = 0) noexcept;
  /// As read_many(), with the rules of fetch_add() for each pair.
  Ticket fetch_add_many(std::span<FetchAddPair> pairs, std::span<ManyOutcome> each = {},
                        std::uint64_t tag = 0) noexcept;
  /// As read_many(), with the rules of compare_swap() for each pair.
  Ticket compare_swap_many(std::span<CompareSwapPair> pairs, std::span<ManyOutcome> each = {},
                           std::uint64_t tag = 0) noexcept;

  /// From now on operations are for `region`, another region of the same session, so that one
  /// submit() can post operations on many regions. The queue keeps every region open on which it
  /// was used. Allocates the first time that a region is selected. Errors: kInvalidArgument (a
  /// region of another session), kOutOfMemory.
  Status select(const Region& region) noexcept;

  /// Posts all operations taken since the last submit() on the lane: one chain, one doorbell (more
  /// only if the send queue has no room for all; the rest follows in wait()). Blocks only while
  /// long unregistered memory is used for the first time (buffer.h), for half of the deadline at
  /// most. Errors: kBusy (another thread is in a call of this queue). Completions report the errors
  /// of an operation or of the session.
  Status submit() noexcept;

  /// Operations that are taken after it are posted only when all operations taken before it have
  /// completed, with any status. wait(), poll() and progress() post the delayed operations, whose
  /// deadline runs from submit(). Never blocks.
  void barrier() noexcept;

  /// Cancels an operation that has not been posted; it completes with kCancelled, certainly without
  /// remote effect. Does not wait for the peer. Errors: kBusy (posted: it ends by itself, at its
  /// deadline at the latest, or has ended; or another thread is in a call of this queue: the
  /// subject says which); kNotFound (a stale ticket: that operation has been handed out).
  Status cancel(Ticket ticket) noexcept;

  /// Blocks until there are `at_least` completions, or all submitted operations have completed.
  /// Their order is not defined: tags and tickets identify them. Errors: see Completions::status().
  Completions wait(std::size_t at_least) noexcept;
  /// The operations that have completed by now. Never waits, even if a lane breaks during the call:
  /// a thread of the engine then waits for the device, and a later call returns its operations.
  Completions poll() noexcept { return wait(0); }

  /// For the application's own event loop: a descriptor that is readable when progress() has work.
  /// Put it into an epoll set, call progress() when it is readable, and use next_deadline() for the
  /// loop's time-out; no thread of the engine takes part. Made by the first call; the queue owns
  /// it. Errors: kSystem (errno kept).
  Result<int> event_fd() noexcept;
  /// The operations that have completed by now, as poll(); takes the events of event_fd() and arms
  /// it for the next one, so that no completion is missed between this call and the next sleep.
  /// Never waits, as poll().
  Completions progress() noexcept;
  /// The deadline of the earliest operation in flight: call progress() at that time, at the latest.
  /// time_point::max() if no operation is in flight.
  [[nodiscard]] std::chrono::steady_clock::time_point next_deadline() const noexcept;

  /// QueueOptions::depth: the most operations that are taken and not handed out.
  [[nodiscard]] std::size_t depth() const noexcept { return room_->depth; }
  /// The number of operations taken whose completions have not been handed out yet.
  [[nodiscard]] std::size_t size() const noexcept { return room_->depth - room_->left; }
  /// Whether the queue takes no operation now.
  [[nodiscard]] bool full() const noexcept { return room_->left == 0; }

 private:
  [[nodiscard]] ByteOffset offset_of(Block block) const noexcept;
  [[nodiscard]] Completions none() const noexcept;
  /// A Target and a Source in pieces, which a call passes in registers.
  Ticket read_bytes(ByteOffset from, std::byte* into, std::size_t length_bytes,
                    detail::LocalMemory* memory, std::uint64_t tag) noexcept;
  Ticket write_bytes(ByteOffset to, const std::byte* from, std::size_t length_bytes,
                     detail::LocalMemory* memory, std::uint64_t tag) noexcept;

  detail::OwnedUnique<detail::QueueCore> core_;
  const detail::QueueRoom* room_;  ///< the core's
};

}  // namespace remora
