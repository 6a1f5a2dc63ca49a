#pragma once

/// Operations for coroutines: `co_await region.read(...)`, and where the coroutine goes on.
///
/// An AsyncRegion comes from Region::async() or from AsyncQueue::async(). The coroutine that uses
/// it need not know from which, nor whether an Executor (executor.h) runs it:
///
/// - **An operation of Region::async()**, awaited inside Executor::run(): the executor submits it
///   together with those of its other tasks. Awaited elsewhere: a poller of the engine drives it
///   and resumes the coroutine; depth and deadline are the defaults of QueueOptions.
/// - **An operation of an AsyncQueue**: a poller drives it. Awaited inside Executor::run(), the
///   coroutine goes on in the executor's thread. Awaited elsewhere, it goes on where the queue's
///   Resume says: on the poller, on the engine's arena, or where the application says.
///
///   auto queue = region.async_queue({.depth = 64}, remora::Resume::on_arena()).value();
///   remora::Status copied = remora::sync_wait(copy(queue.async(), slots));
///
/// **Waiting for its turn.** When as many operations as the queue's depth are in flight, a further
/// one waits, first come first served, in the coroutine's frame. The deadline of an operation that
/// a poller drives runs from its co_await: whether it waits or is in flight, it ends within the
/// queue's deadline plus two seconds. One whose turn comes too late ends as kTimedOut and was never
/// sent. That of an operation that an Executor drives runs from its submission. (Where coroutines
/// go on in the application's loop, in an Executor or on the arena, an operation keeps its place
/// until its coroutine goes on: time that passes before that is the loop's.)
///
/// **Never block a coroutine that goes on on a poller or the arena**: no synchronous operation, no
/// control request, no sync_wait(), no lock that is held for long. A poller that is blocked
/// completes nothing for any of its queues. That is a fault of the program; nothing detects it.
///
/// **Errors are values**: of misuse, of the session, of deadlines, as Completion::error() says.
/// An operation that is refused at once (misuse, a closed queue) does not suspend: the coroutine
/// goes on in the same thread. An exception that leaves a coroutine's resumption ends the program.
///
/// **Destroying a task that waits for an operation** is safe: the operation ends by itself, in the
/// slot that it owns, and the destroyed frame is not resumed. A buffer that is not a slot must last
/// until then nevertheless. It is safe *where the task would go on*, since it is not resumed there
/// meanwhile: in the executor's thread; on the queue's poller; in the thread of the application's
/// loop, also when the loop has been given its Resumption already. On the arena there is no such
/// place. From any other thread: destroy the queue first, which ends its operations and waits for
/// the coroutines. (The queue of Region::async() cannot be destroyed first: wait for such a task.)

#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <utility>

#include <remora/engine/buffer.h>
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

/// Something that a thread is to do, once; stands in what it is about.
struct Resumable {
  Resumable* next = nullptr;  ///< in what is posted to that thread
  void (*run)(Resumable& self) noexcept = nullptr;
};

class LocalMemory;
class RegionGrant;
struct AsyncRecord;

/// The request of an awaited operation.
struct AsyncRequest {
  enum class Kind : std::uint8_t { kRead, kWrite, kWriteZeroes, kCompareSwap, kFetchAdd };

  Kind kind;
  bool owns_slot = false;
  ByteOffset offset;
  std::byte* local = nullptr;  ///< of a transfer; a write's bytes are only read
  std::uint64_t length_bytes = 0;
  LocalMemory* memory = nullptr;
  std::uint64_t operand = 0;
  std::uint64_t swap = 0;
  Slot slot{};

  template <typename Buffer>
  static AsyncRequest transfer(Kind kind, ByteOffset offset, const Buffer& buffer) noexcept {
    return {.kind = kind,
            .offset = offset,
            .local = const_cast<std::byte*>(buffer.bytes().data()),
            .length_bytes = buffer.bytes().size(),
            .memory = buffer.memory()};
  }
  static AsyncRequest transfer(Kind kind, ByteOffset offset, Slot&& slot) noexcept {
    AsyncRequest request = transfer(kind, offset, Target{slot});
    request.owns_slot = true;
    request.slot = std::move(slot);
    return request;
  }
  /// It waits for a place in a queue's table, and is to keep its memory registered. Waited, made
  /// when it has a place or is given up, ends that.
  void begin_wait() const noexcept;
  class Waited;
  /// Gives it to a queue, in that one of its ways to take which is right for its kind.
  template <typename Queue, typename... More>
  auto give_to(Queue& queue, More... more) noexcept;
};

/// One awaited operation; stands in the coroutine's frame.
class AsyncOperation {
 public:
  ~AsyncOperation();
  AsyncOperation(const AsyncOperation&) = delete;
  AsyncOperation& operator=(const AsyncOperation&) = delete;

  [[nodiscard]] bool await_ready() const noexcept { return false; }
  /// False: it could not be taken, and status_ says why.
  bool await_suspend(std::coroutine_handle<> waiter) noexcept;

 protected:
  using Kind = AsyncRequest::Kind;
  AsyncOperation(const AsyncRegion& in, AsyncRequest&& request) noexcept;
  /// The coroutine goes on: how it ended.
  Status end() noexcept;

  AsyncRequest request_;
  Status status_;
  std::uint64_t old_value_ = 0;

 private:
  friend class AsyncCore;
  Status begin_on_region() noexcept;
  Status begin_on_queue() noexcept;
  Status begin_on(AsyncCore& core) noexcept;

  OwnedShared<RegionGrant> region_;     ///< null where there is a queue
  OwnedShared<PolledAsyncCore> queue_;  ///< null: an operation of Region::async()
  std::stop_token stop_;
  std::coroutine_handle<> waiter_;
  AsyncCore* taken_by_ = nullptr;  ///< until the coroutine goes on
  std::shared_ptr<CoroutineInbox>
      inbox_;                         ///< of the Executor that resumes it; null: see AsyncRecord
  bool in_line_ = false;              ///< it waits for its turn
  AsyncOperation* before_ = nullptr;  ///< in that line
  AsyncOperation* behind_ = nullptr;
  std::int64_t until_ = 0;         ///< when it has waited too long
  AsyncRecord* record_ = nullptr;  ///< its place, when it has one
};
}  // namespace detail

/// An awaited transfer of a slot: gives it back, or the error it ended with.
class [[nodiscard]] AsyncTransfer final : public detail::AsyncOperation {
 public:
  AsyncTransfer(const AsyncRegion& in, Kind kind, ByteOffset offset, Slot&& slot) noexcept
      : AsyncOperation{in, detail::AsyncRequest::transfer(kind, offset, std::move(slot))} {}
  Result<Slot> await_resume() noexcept {
    const Status status = end();
    if (!status) return status.error();
    return std::move(request_.slot);
  }
};

/// An awaited operation that gives nothing back but how it ended.
class [[nodiscard]] AsyncStatus final : public detail::AsyncOperation {
 public:
  AsyncStatus(const AsyncRegion& in, detail::AsyncRequest&& request) noexcept
      : AsyncOperation{in, std::move(request)} {}
  Status await_resume() noexcept { return end(); }
};

/// An awaited atomic: gives what stood there before.
class [[nodiscard]] AsyncAtomic final : public detail::AsyncOperation {
 public:
  AsyncAtomic(const AsyncRegion& in, detail::AsyncRequest&& request) noexcept
      : AsyncOperation{in, std::move(request)} {}
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
/// Errors: as Completion::error(); kCancelled (with_stop()); kClosed (the queue is gone, or this,
/// the region or the queue was moved from); kTimedOut (its turn did not come); kSystem,
/// kOutOfMemory (an Executor has no descriptor). Of Region::async() outside Executor::run(), where
/// the first operation starts a poller: those of Region::callback_queue, so kUnsupported where
/// EngineOptions::pollers is 0.
class AsyncRegion {
 public:
  AsyncRegion(detail::OwnedShared<detail::RegionGrant> region,
              detail::OwnedShared<detail::PolledAsyncCore> queue) noexcept
      : region_{std::move(region)}, queue_{std::move(queue)} {}

  /// The same operations for as long as no stop is requested of `stop`. Afterwards none begins:
  /// what is awaited then, and what waits for its turn when that comes, ends as kCancelled, and was
  /// never sent. What has been sent ends by itself, at its deadline at the latest, and its
  /// coroutine goes on then: until that its buffer is in use. (To let go of a slot at once destroy
  /// the task.)
  [[nodiscard]] AsyncRegion with_stop(std::stop_token stop) const noexcept {
    AsyncRegion stoppable = *this;
    stoppable.stop_ = std::move(stop);
    return stoppable;
  }

  /// Fills the whole slot.
  [[nodiscard]] AsyncTransfer read(ByteOffset from, Slot&& into) const noexcept {
    return {*this, Kind::kRead, from, std::move(into)};
  }
  [[nodiscard]] AsyncTransfer read(Block from, Slot&& into) const noexcept {
    return read(offset_of(from), std::move(into));
  }
  /// `into` is memory that may be written: nothing checks that (buffer.h).
  [[nodiscard]] AsyncStatus read(ByteOffset from, Target into) const noexcept {
    return {*this, Request::transfer(Kind::kRead, from, into)};
  }
  [[nodiscard]] AsyncStatus read(Block from, Target into) const noexcept {
    return read(offset_of(from), into);
  }
  /// Writes the whole slot.
  [[nodiscard]] AsyncTransfer write(ByteOffset to, Slot&& from) const noexcept {
    return {*this, Kind::kWrite, to, std::move(from)};
  }
  [[nodiscard]] AsyncTransfer write(Block to, Slot&& from) const noexcept {
    return write(offset_of(to), std::move(from));
  }
  [[nodiscard]] AsyncStatus write(ByteOffset to, Source from) const noexcept {
    return {*this, Request::transfer(Kind::kWrite, to, from)};
  }
  [[nodiscard]] AsyncStatus write(Block to, Source from) const noexcept {
    return write(offset_of(to), from);
  }
  /// See Region::write_zeroes.
  [[nodiscard]] AsyncStatus write_zeroes(ByteOffset at, std::uint64_t length_bytes) const noexcept {
    return {*this, {.kind = Kind::kWriteZeroes, .offset = at, .length_bytes = length_bytes}};
  }
  /// 8 bytes, 8-byte aligned, in the region's atomic domain.
  [[nodiscard]] AsyncAtomic compare_swap(ByteOffset at, std::uint64_t expected,
                                         std::uint64_t desired) const noexcept {
    return {*this, atomic(Kind::kCompareSwap, at, expected, desired)};
  }
  [[nodiscard]] AsyncAtomic fetch_add(ByteOffset at, std::uint64_t delta) const noexcept {
    return {*this, atomic(Kind::kFetchAdd, at, delta, 0)};
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
  detail::OwnedShared<detail::PolledAsyncCore> queue_;  ///< null: of Region::async()
  std::stop_token stop_;
};

/// A coroutine that is to go on, or a callback of a control call (control.h). Called once, where it
/// goes on; never dropped without a call, which would keep the operation's place, and so the
/// queue's memory, for ever. Trivially copyable, one pointer: fits into any loop's own kind of
/// task. Outlives the queue and the coroutine: when that has been destroyed meanwhile, the call
/// resumes no coroutine.
class Resumption {
 public:
  explicit Resumption(detail::Resumable& record) noexcept : record_{&record} {}
  void operator()() const noexcept { record_->run(*record_); }
  /// For queues of the library's own.
  [[nodiscard]] detail::Resumable& record() const noexcept { return *record_; }

 private:
  detail::Resumable* record_;
};

/// Where the coroutines of an AsyncQueue go on when an operation has ended, unless it was awaited
/// inside Executor::run().
class Resume {
 public:
  /// Hands `next` over to the thread that is to call it; does not call it itself. Called by a
  /// poller of the engine's, or by the thread that is in co_await or in a Resumption: thread-safe,
  /// not blocking.
  using Post = void (*)(void* context, Resumption next) noexcept;

  /// On the poller that noticed: no hand-over at all. The default.
  constexpr Resume() noexcept = default;
  [[nodiscard]] static constexpr Resume on_poller() noexcept { return {}; }
  /// On the engine's arena (EngineOptions::arena_threads): many at once, on threads that it
  /// keeps for this. For coroutines that compute between their operations. A hand-over costs
  /// microseconds, and allocates nothing.
  [[nodiscard]] static constexpr Resume on_arena() noexcept {
    Resume resume;
    resume.on_arena_ = true;
    return resume;
  }
  /// Where `post` says. `context` is borrowed: it outlives the queue, and every coroutine of it
  /// that has not gone on when the queue is destroyed.
  constexpr Resume(Post post, void* context) noexcept : post_{post}, context_{context} {}
  /// The same for a loop with `post(Resumption) noexcept`, which is borrowed.
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
  void operator()(PolledAsyncCore* closing) noexcept;
};
}  // namespace detail

/// Operations of a region for coroutines of any thread; from Region::async_queue(). Move-only.
///
/// Thread-safe, but for moving and destroying the handle itself. Destroying it while coroutines
/// await operations is allowed: those are ended. One that was moved from has depth() 0, and the
/// operations of its async() end with kClosed.
class AsyncQueue {
 public:
  explicit AsyncQueue(std::shared_ptr<detail::PolledAsyncCore> core) noexcept;
  /// Ends its operations: those that wait for their turn, and all that are awaited later, with
  /// kClosed; those in flight by themselves. Waits until they have ended and, on the poller or the
  /// arena, their coroutines have gone on and come to rest: at most the queue's deadline plus two
  /// seconds (what then still blocks is logged). A loop of the application's, and an Executor, have
  /// been given what is to go on in them. Not by a coroutine of the queue's own that goes on on the
  /// poller or the arena: that is a fault of the program, which is logged, and then nothing is
  /// waited for.
  ~AsyncQueue() = default;
  AsyncQueue(AsyncQueue&&) noexcept = default;
  AsyncQueue& operator=(AsyncQueue&&) noexcept = default;

  /// May outlive the queue: then its operations end with kClosed.
  [[nodiscard]] AsyncRegion async() const noexcept;
  [[nodiscard]] std::size_t depth() const noexcept;

 private:
  detail::OwnedUnique<detail::PolledAsyncCore, detail::CloseAsync> core_;
};

}  // namespace remora
