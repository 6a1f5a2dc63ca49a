#pragma once

/// Operations for coroutines: `co_await region.read(...)`, and the thread in which the coroutine
/// continues.
///
/// An AsyncRegion comes from Region::async() or from AsyncQueue::async(). The coroutine that uses
/// it need not know which of the two made it, nor whether an Executor (executor.h) runs it:
///
/// - **An operation of Region::async()**, awaited inside Executor::run(): the executor submits it
///   together with the operations of its other tasks. Awaited elsewhere: a poller of the engine
///   drives it and resumes the coroutine; depth and deadline are the defaults of QueueOptions.
/// - **An operation of an AsyncQueue**: a poller drives it. Awaited inside Executor::run(), the
///   coroutine continues in the executor's thread. Awaited elsewhere, it continues where the
///   queue's Resume says: on the poller, on the engine's arena, or in a thread that the application
///   chooses.
///
///   auto queue = region.async_queue({.depth = 64}, remora::Resume::on_arena()).value();
///   remora::Status copied = remora::sync_wait(copy(queue.async(), slots));
///
/// **Waiting for its turn.** When as many operations as the queue's depth are in flight, a further
/// one waits, first come first served, in the coroutine's frame. The deadline of an operation that
/// a poller drives runs from its co_await: whether it waits or is in flight, it ends within the
/// queue's deadline plus two seconds. An operation whose turn comes too late ends as kTimedOut and
/// was never sent. The deadline of an operation that an Executor drives runs from its submission.
/// (If coroutines continue in the application's loop, in an Executor or on the arena, an operation
/// keeps its place until its coroutine continues; the loop answers for the time before that.)
///
/// **Many pairs** (read_many() and its neighbours) are one operation with one result; each pair
/// counts as one operation of the depth. many.h has the rules for pairs.
///
/// **Never block a coroutine that continues on a poller or the arena**: no synchronous operation,
/// no control request, no sync_wait(), no lock that is held for long. A poller that is blocked
/// completes nothing for any of its queues. That is a fault of the program, which the library does
/// not detect.
///
/// **Errors are values**: of misuse, of the session, of deadlines, as Completion::error() says. An
/// operation that is refused at once (misuse, a closed queue) does not suspend: the coroutine
/// continues in the same thread. An exception that leaves a coroutine's resumption ends the
/// program.
///
/// **Destroying a task that waits for an operation** is safe: the operation ends by itself, in the
/// slot that it owns, and the destroyed frame is not resumed. A buffer that is not a slot must last
/// until then nevertheless. It is safe *where the task would continue*, since it is not resumed
/// there meanwhile: in the executor's thread; on the queue's poller; in the thread of the
/// application's loop, even after the loop has got its Resumption. On the arena there is no such
/// place. From any other thread: destroy the queue first, which ends its operations and waits for
/// the coroutines. (The queue of Region::async() cannot be destroyed first: wait for such a task.)

#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <utility>

#include <remora/engine/buffer.h>
#include <remora/engine/many.h>
#include <remora/engine/types.h>
#include <remora/owned.h>
#include <remora/result.h>

namespace remora {

class AsyncRegion;

namespace detail {
class AsyncCore;
class ControlRecord;
class CoroutineInbox;
class PolledAsyncCore;

/// A job that a thread runs once; a member of the object that the job is about.
struct Resumable {
  Resumable* next = nullptr;  ///< in the list of jobs for that thread
  void (*run)(Resumable& self) noexcept = nullptr;
};

class LocalMemory;
class RegionGrant;
struct AsyncRecord;

/// The request of an awaited operation.
struct AsyncRequest {
  /// The operation. Kinds from kReadMany on are groups.
  enum class Kind : std::uint8_t {
    kRead,
    kWrite,
    kWriteZeroes,
    kCompareSwap,
    kFetchAdd,
    // A group of pairs:
    kReadMany,
    kWriteMany,
    kFetchAddMany,
    kCompareSwapMany,
  };

  Kind kind;
  bool owns_slot = false;
  ByteOffset offset;
  std::byte* local = nullptr;  ///< of a transfer; a write only reads these bytes
  std::uint64_t length_bytes = 0;
  LocalMemory* memory = nullptr;
  std::uint64_t operand = 0;
  std::uint64_t swap = 0;
  Slot slot{};
  /// Of a group, borrowed: an array of the pairs of the kind, and their outcomes.
  const void* pairs = nullptr;
  std::size_t pair_count = 0;
  std::span<ManyOutcome> each{};
  bool keeps_memory = false;  ///< begin_wait() was called for a group, and end_wait() was not

  [[nodiscard]] bool is_group() const noexcept { return kind >= Kind::kReadMany; }
  /// Number of operations of the queue's depth.
  [[nodiscard]] std::size_t places() const noexcept { return is_group() ? pair_count : 1; }
  /// A request for all of `pairs`. Both arrays are borrowed until the group has ended.
  template <typename Pair>
  static AsyncRequest group(Kind kind, std::span<Pair> pairs,
                            std::span<ManyOutcome> each) noexcept {
    return {.kind = kind,
            .offset = {},
            .pairs = pairs.data(),
            .pair_count = pairs.size(),
            .each = each};
  }
  /// A request for the bytes of `buffer`, which are borrowed until the operation has ended.
  template <typename Buffer>
  static AsyncRequest transfer(Kind kind, ByteOffset offset, const Buffer& buffer) noexcept {
    return {.kind = kind,
            .offset = offset,
            .local = const_cast<std::byte*>(buffer.bytes().data()),
            .length_bytes = buffer.bytes().size(),
            .memory = buffer.memory()};
  }
  /// A request for the whole slot. It owns the slot until its end.
  static AsyncRequest transfer(Kind kind, ByteOffset offset, Slot&& slot) noexcept {
    AsyncRequest request = transfer(kind, offset, Target{slot});
    request.owns_slot = true;
    request.slot = std::move(slot);
    return request;
  }
  /// The request waits for a place in a queue's table, and keeps its memory registered. The Waited
  /// that is made when it gets a place, or gives up, ends that. A group keeps its memory until
  /// end_wait(), which is called when the group has ended: its pairs are valid until then.
  void begin_wait() noexcept;
  /// Ends what begin_wait() began: the memory may be deregistered.
  void end_wait() noexcept;
  class Waited;
  /// Gives the request to a queue, by the function of the queue for its kind.
  template <typename Queue, typename... More>
  auto give_to(Queue& queue, More... more) noexcept;
};

/// One awaited operation; a member of the coroutine's frame.
class AsyncOperation {
 public:
  ~AsyncOperation();
  AsyncOperation(const AsyncOperation&) = delete;
  AsyncOperation& operator=(const AsyncOperation&) = delete;

  /// False: every operation is taken by await_suspend(), which may refuse it.
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  /// False: the queue did not take the operation, and status_ says why.
  bool await_suspend(std::coroutine_handle<> waiter) noexcept;

 protected:
  using Kind = AsyncRequest::Kind;
  AsyncOperation(const AsyncRegion& in, AsyncRequest&& request) noexcept;
  /// The coroutine continues: returns the outcome of the operation.
  Status end() noexcept;

  AsyncRequest request_;
  Status status_;
  std::uint64_t old_value_ = 0;

 private:
  friend class AsyncCore;
  Status begin_on_region() noexcept;
  Status begin_on_queue() noexcept;
  Status begin_on(AsyncCore& core) noexcept;

  OwnedShared<RegionGrant> region_;     ///< null if there is a queue
  OwnedShared<PolledAsyncCore> queue_;  ///< null: an operation of Region::async()
  std::stop_token stop_;
  std::coroutine_handle<> waiter_;
  AsyncCore* taken_by_ = nullptr;          ///< until the coroutine continues
  std::shared_ptr<CoroutineInbox> inbox_;  ///< of its Executor; null: see AsyncRecord
  bool in_line_ = false;                   ///< the operation waits for its turn
  AsyncOperation* before_ = nullptr;       ///< in that line
  AsyncOperation* behind_ = nullptr;
  std::int64_t until_ = 0;         ///< the time at which it stops waiting
  AsyncRecord* record_ = nullptr;  ///< its place, when it has one
  /// Of the first operation in line, a group: the places that it has so far.
  AsyncRecord* reserved_ = nullptr;
  std::size_t reserved_count_ = 0;
};
}  // namespace detail

/// An awaited transfer of a slot: returns the slot, or the error of the transfer.
class [[nodiscard]] AsyncTransfer final : public detail::AsyncOperation {
 public:
  /// For AsyncRegion. Begins nothing: the operation begins when it is awaited.
  AsyncTransfer(const AsyncRegion& in, Kind kind, ByteOffset offset, Slot&& slot) noexcept
      : AsyncOperation{in, detail::AsyncRequest::transfer(kind, offset, std::move(slot))} {}
  /// The slot. Errors: see AsyncRegion; the slot is then back in its pool.
  Result<Slot> await_resume() noexcept {
    const Status status = end();
    if (!status) return status.error();
    return std::move(request_.slot);
  }
};

/// An awaited operation that returns only its status.
class [[nodiscard]] AsyncStatus final : public detail::AsyncOperation {
 public:
  /// For AsyncRegion. Begins nothing: the operation begins when it is awaited.
  AsyncStatus(const AsyncRegion& in, detail::AsyncRequest&& request) noexcept
      : AsyncOperation{in, std::move(request)} {}
  /// Errors: see AsyncRegion.
  Status await_resume() noexcept { return end(); }
};

/// An awaited atomic: returns the value before it.
class [[nodiscard]] AsyncAtomic final : public detail::AsyncOperation {
 public:
  /// For AsyncRegion. Begins nothing: the operation begins when it is awaited.
  AsyncAtomic(const AsyncRegion& in, detail::AsyncRequest&& request) noexcept
      : AsyncOperation{in, std::move(request)} {}
  /// The value before the atomic. Errors: see AsyncRegion.
  Result<std::uint64_t> await_resume() noexcept {
    const Status status = end();
    if (!status) return status.error();
    return old_value_;
  }
};

/// A region's operations for coroutines; from Region::async() or AsyncQueue::async(). Copyable
/// handle, thread-safe.
///
/// A slot that is passed belongs to the operation and comes back with its result; after an error it
/// is back in its pool. Targets and sources are borrowed until the operation has ended, which may
/// be later than the coroutine, when that is destroyed. The operation begins when it is awaited.
/// Errors: as Completion::error(); kCancelled (with_stop()); kClosed (the queue is gone, or this
/// object, the region or the queue was moved from); kTimedOut (its turn did not come); kSystem,
/// kOutOfMemory (an Executor has no descriptor). Of Region::async() outside Executor::run(), where
/// the first operation starts a poller: those of Region::callback_queue, so kUnsupported where
/// EngineOptions::pollers is 0.
class AsyncRegion {
 public:
  /// For Region::async() and AsyncQueue::async().
  AsyncRegion(detail::OwnedShared<detail::RegionGrant> region,
              detail::OwnedShared<detail::PolledAsyncCore> queue) noexcept
      : region_{std::move(region)}, queue_{std::move(queue)} {}

  /// The same operations, until a stop is requested of `stop`. After that none begins: an operation
  /// that is awaited later, or that waits for its turn, ends as kCancelled, and was never sent. An
  /// operation that was sent ends by itself, at its deadline at the latest; then its coroutine
  /// continues, and until then its buffer is in use. (To release a slot at once, destroy the task.)
  [[nodiscard]] AsyncRegion with_stop(std::stop_token stop) const noexcept {
    AsyncRegion stoppable = *this;
    stoppable.stop_ = std::move(stop);
    return stoppable;
  }

  /// Fills the whole slot.
  [[nodiscard]] AsyncTransfer read(ByteOffset from, Slot&& into) const noexcept {
    return {*this, Kind::kRead, from, std::move(into)};
  }
  /// From the start of the block.
  [[nodiscard]] AsyncTransfer read(Block from, Slot&& into) const noexcept {
    return read(offset_of(from), std::move(into));
  }
  /// Reads as many bytes as `into` has. `into` is memory that may be written: nothing checks that
  /// (buffer.h).
  [[nodiscard]] AsyncStatus read(ByteOffset from, Target into) const noexcept {
    return {*this, Request::transfer(Kind::kRead, from, into)};
  }
  /// From the start of the block: as many bytes as `into` has.
  [[nodiscard]] AsyncStatus read(Block from, Target into) const noexcept {
    return read(offset_of(from), into);
  }
  /// Writes the whole slot.
  [[nodiscard]] AsyncTransfer write(ByteOffset to, Slot&& from) const noexcept {
    return {*this, Kind::kWrite, to, std::move(from)};
  }
  /// Writes the whole slot, from the start of the block.
  [[nodiscard]] AsyncTransfer write(Block to, Slot&& from) const noexcept {
    return write(offset_of(to), std::move(from));
  }
  /// Writes all bytes of `from`.
  [[nodiscard]] AsyncStatus write(ByteOffset to, Source from) const noexcept {
    return {*this, Request::transfer(Kind::kWrite, to, from)};
  }
  /// From the start of the block: all bytes of `from`.
  [[nodiscard]] AsyncStatus write(Block to, Source from) const noexcept {
    return write(offset_of(to), from);
  }
  /// See Region::write_zeroes.
  [[nodiscard]] AsyncStatus write_zeroes(ByteOffset at, std::uint64_t length_bytes) const noexcept {
    return {*this, {.kind = Kind::kWriteZeroes, .offset = at, .length_bytes = length_bytes}};
  }
  /// 8 bytes, 8-byte aligned, in the region's atomic domain. Returns the value before: equal to
  /// `expected` means swapped.
  [[nodiscard]] AsyncAtomic compare_swap(ByteOffset at, std::uint64_t expected,
                                         std::uint64_t desired) const noexcept {
    return {*this, atomic(Kind::kCompareSwap, at, expected, desired)};
  }
  /// As compare_swap(), but adds `delta`; the sum wraps at 2^64.
  [[nodiscard]] AsyncAtomic fetch_add(ByteOffset at, std::uint64_t delta) const noexcept {
    return {*this, atomic(Kind::kFetchAdd, at, delta, 0)};
  }
  /// Up to as many pairs as the depth of the queue (else kLimitExceeded), as one operation that
  /// ends when all pairs have ended. The result is ok if every pair is ok, or there is none;
  /// otherwise it is the error of the first failed pair in the array, with its index in the
  /// subject. `each`: empty, or as many as pairs (else kInvalidArgument); gets their outcomes, but
  /// is not written if the operation is refused as a whole. Old values of atomics are written into
  /// the pairs. Both arrays are borrowed as targets are. The pairs begin together: they wait until
  /// the queue has room for all of them.
  [[nodiscard]] AsyncStatus read_many(std::span<const ReadPair> pairs,
                                      std::span<ManyOutcome> each = {}) const noexcept {
    return {*this, Request::group(Kind::kReadMany, pairs, each)};
  }
  /// As read_many(); a pair's local memory is only read.
  [[nodiscard]] AsyncStatus write_many(std::span<const WritePair> pairs,
                                       std::span<ManyOutcome> each = {}) const noexcept {
    return {*this, Request::group(Kind::kWriteMany, pairs, each)};
  }
  /// As read_many(), with the rules of fetch_add() for each pair.
  [[nodiscard]] AsyncStatus fetch_add_many(std::span<FetchAddPair> pairs,
                                           std::span<ManyOutcome> each = {}) const noexcept {
    return {*this, Request::group(Kind::kFetchAddMany, pairs, each)};
  }
  /// As read_many(), with the rules of compare_swap() for each pair.
  [[nodiscard]] AsyncStatus compare_swap_many(std::span<CompareSwapPair> pairs,
                                              std::span<ManyOutcome> each = {}) const noexcept {
    return {*this, Request::group(Kind::kCompareSwapMany, pairs, each)};
  }

 private:
  friend class detail::AsyncOperation;
  using Request = detail::AsyncRequest;
  using Kind = Request::Kind;
  static Request atomic(Kind kind, ByteOffset at, std::uint64_t operand,
                        std::uint64_t swap) noexcept {
    return {.kind = kind,
            .offset = at,
            .length_bytes = sizeof(std::uint64_t),
            .operand = operand,
            .swap = swap};
  }
  [[nodiscard]] ByteOffset offset_of(Block block) const noexcept;

  detail::OwnedShared<detail::RegionGrant> region_;
  detail::OwnedShared<detail::PolledAsyncCore> queue_;  ///< null: from Region::async()
  std::stop_token stop_;
};

/// A coroutine to resume, or a callback of a control call to run (control.h). Call it once, in the
/// thread where it continues; never drop it without a call, which would keep the operation's place,
/// and so the queue's memory, until the process ends. Trivially copyable, one pointer: fits into
/// any loop's own kind of task. Outlives the queue and the coroutine: if the coroutine was
/// destroyed meanwhile, the call resumes none.
class Resumption {
 public:
  /// For Remora's own threads.
  explicit Resumption(detail::Resumable& record) noexcept : record_{&record} {}
  /// Resumes the coroutine, or runs the callback, in this thread until it suspends or returns.
  void operator()() const noexcept { record_->run(*record_); }
  /// For the library's own queues.
  [[nodiscard]] detail::Resumable& record() const noexcept { return *record_; }

 private:
  detail::Resumable* record_;
};

/// Where the coroutines of an AsyncQueue continue when an operation has ended, unless it was
/// awaited inside Executor::run().
class Resume {
 public:
  /// Passes `next` to the thread that calls it; does not call it itself. A poller of the engine
  /// calls this function, or the thread that is in co_await or in a Resumption: it must be
  /// thread-safe and must not block.
  using Post = void (*)(void* context, Resumption next) noexcept;

  /// On the poller that has noticed the end: no other thread is involved. The default.
  constexpr Resume() noexcept = default;
  /// The default, by its name.
  [[nodiscard]] static constexpr Resume on_poller() noexcept { return {}; }
  /// On the engine's arena (EngineOptions::arena_threads): many at once, on threads of the engine
  /// for this purpose. For coroutines that compute between their operations. Passing a coroutine to
  /// another thread takes microseconds, and allocates nothing.
  [[nodiscard]] static constexpr Resume on_arena() noexcept {
    Resume resume;
    resume.on_arena_ = true;
    return resume;
  }
  /// Where `post` says. `context` is borrowed: it must outlive the queue, and every coroutine of
  /// the queue that has not continued when the queue is destroyed.
  constexpr Resume(Post post, void* context) noexcept : post_{post}, context_{context} {}
  /// The same for a loop with a function `post(Resumption) noexcept`; the loop is borrowed.
  template <typename Loop>
  requires requires(Loop& loop, Resumption next) {
    { loop.post(next) }
    noexcept;
  }
  [[nodiscard]] static constexpr Resume on(Loop& loop) noexcept {
    return {
        [](void* context, Resumption next) noexcept { static_cast<Loop*>(context)->post(next); },
        &loop};
  }

 private:
  friend class detail::PolledAsyncCore;
  friend class detail::ControlRecord;
  Post post_ = nullptr;
  void* context_ = nullptr;
  bool on_arena_ = false;
};

namespace detail {
/// Ends the queue; see ~AsyncQueue().
struct CloseAsync {
  std::shared_ptr<PolledAsyncCore> core;
  /// As ~AsyncQueue().
  void operator()(PolledAsyncCore* closing) noexcept;
};
}  // namespace detail

/// Operations of a region for coroutines of any thread; from Region::async_queue(). Move-only.
///
/// Thread-safe, except moving and destroying the handle itself. It may be destroyed while
/// coroutines await operations, which then end. A queue that was moved from has depth() 0, and the
/// operations of its async() end with kClosed.
class AsyncQueue {
 public:
  /// For Region::async_queue().
  explicit AsyncQueue(std::shared_ptr<detail::PolledAsyncCore> core) noexcept;
  /// Ends its operations: those that wait for their turn, and all that are awaited later, end with
  /// kClosed; those in flight end by themselves. Waits until they have ended and, on the poller or
  /// the arena, their coroutines have continued and then suspended or ended: at most the queue's
  /// deadline plus two seconds (a coroutine that still blocks then is logged). A loop of the
  /// application, or an Executor, has got the coroutines that continue in it. A coroutine of this
  /// queue that continues on the poller or the arena must not call it: that is a fault of the
  /// program, which is logged, and then the destructor does not wait.
  ~AsyncQueue() = default;
  AsyncQueue(AsyncQueue&&) noexcept = default;
  /// Ends the queue that this object had, as the destructor does.
  AsyncQueue& operator=(AsyncQueue&&) noexcept = default;

  /// The result may outlive the queue: then its operations end with kClosed.
  [[nodiscard]] AsyncRegion async() const noexcept;
  /// QueueOptions::depth: the most operations in flight; further ones wait for their turn.
  [[nodiscard]] std::size_t depth() const noexcept;

 private:
  detail::OwnedUnique<detail::PolledAsyncCore, detail::CloseAsync> core_;
};

}  // namespace remora
