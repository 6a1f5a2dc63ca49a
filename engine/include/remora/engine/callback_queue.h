#pragma once

/// CallbackQueue: operations that any thread may submit. When one has ended, a thread of the engine
/// calls its callback.
///
///   auto queue = region.callback_queue({.depth = 64}).value();
///   queue.read(remora::Block{7}, slots.take(), [](remora::Completion& c) {
///     if (c.ok()) use(c.slot().bytes());
///   }).value();
///
/// **Submitting.** Each call posts one operation at once; if another thread is using the lane, that
/// thread posts for both. A call allocates nothing and does not wait, except while memory is
/// registered with a device for the first time, and over shm for the copy. A call that returns an
/// error has taken nothing: slot and callable still belong to the caller, and there is no callback.
/// After a call that returns ok the callback is called exactly once, within the deadline plus two
/// seconds.
///
/// **Callbacks** run on the queue's *poller*, one at a time for each queue, on every transport,
/// also if the operation was done before the call returned. In a callback:
///
/// - submit further operations, also to the same queue, in which the ended operation's place is
///   free again;
/// - do not block: all queues of the poller wait meanwhile, even past their deadlines. So no
///   synchronous operation, no control request, no lock that is held for long;
/// - do not destroy the queue, nor another queue of the same poller: that is a fault of the
///   program. It is logged, and the queue is freed when its operations have ended, but the
///   destructor does not wait for them;
/// - an exception that leaves the callback is caught, logged and counted
///   (`remora_client_callback_exceptions_total`), and the program continues.
///
/// **Pollers** are threads of the engine (EngineOptions::pollers), started with the first of these
/// queues. A poller polls for EngineOptions::spin after the last completion, then sleeps until the
/// next event.

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include <remora/engine/buffer.h>
#include <remora/engine/many.h>
#include <remora/engine/queue.h>
#include <remora/engine/types.h>
#include <remora/owned.h>
#include <remora/result.h>

namespace remora {

/// The most bytes of a callable, with its captures: it is kept inside of its operation's record.
inline constexpr std::size_t kMaxCallbackBytes = 64;

/// A callable that may be given as a callback: `void(Completion&)`, small enough, and made from the
/// argument without a throw. A callable that throws when it is copied must be moved.
template <typename Given>
concept CompletionCallback =
    std::is_object_v<std::remove_reference_t<Given>> && std::invocable < std::decay_t<Given>
&, Completion& > &&sizeof(std::decay_t<Given>) <= kMaxCallbackBytes &&
       alignof(std::decay_t<Given>) <= alignof(std::max_align_t) &&
       std::is_nothrow_constructible_v<std::decay_t<Given>,
                                       Given>&& std::is_nothrow_destructible_v<std::decay_t<Given>>;

namespace detail {
class CallbackCore;

/// Operations on a callable whose type is erased.
struct CallbackType {
  void (*move)(void* to, void* from) noexcept;
  void (*call)(void* callable, Completion& completion);
  void (*destroy)(void* callable) noexcept;
};

template <typename Given>
inline constexpr CallbackType kCallbackType{
    [](void* to, void* from) noexcept {
      ::new (to) std::decay_t<Given>(
          static_cast<Given&&>(*static_cast<std::remove_reference_t<Given>*>(from)));
    },
    [](void* callable, Completion& completion) {
      (*static_cast<std::decay_t<Given>*>(callable))(completion);
    },
    [](void* callable) noexcept { std::destroy_at(static_cast<std::decay_t<Given>*>(callable)); }};

/// A callable that is being passed into a record; moved from when the operation is taken.
struct GivenCallback {
  const CallbackType* type;
  void* callable;
};
/// `callback` as `Given` was forwarded; borrowed.
template <typename Given>
[[nodiscard]] GivenCallback give(std::remove_reference_t<Given>& callback) noexcept {
  // Const again if it is made from a const callable.
  const void* const at = std::addressof(callback);
  return {&kCallbackType<Given&&>, const_cast<void*>(at)};
}

/// Waits for the operations in flight; see ~CallbackQueue().
struct CloseCallbacks {
  /// As ~CallbackQueue().
  void operator()(CallbackCore* core) const noexcept;
};
}  // namespace detail

/// From Region::callback_queue(). Move-only.
///
/// Thread-safe: any number of threads may submit at once. As with every object, no call may run
/// while it is moved or destroyed.
///
/// Errors of all submissions: kWouldBlock (`depth` operations are in flight: try again after a
/// callback); kClosed (from a callback, while the queue is being destroyed; on a queue that was
/// moved from, whose depth() is 0); and the errors of misuse that Completion::error() lists, since
/// misuse is noticed before anything is sent. The callback gets all later errors.
class CallbackQueue {
 public:
  /// For Region::callback_queue().
  explicit CallbackQueue(detail::CallbackCore* core) noexcept
      : core_{std::unique_ptr<detail::CallbackCore, detail::CloseCallbacks>{core}} {}
  /// Waits until every operation in flight has ended and its callback has returned: at most the
  /// queue's deadline plus two seconds. If a callback blocks for longer than that, the operations
  /// have ended nevertheless, and the remaining callbacks run after the destructor has returned
  /// (logged).
  ~CallbackQueue() = default;
  CallbackQueue(CallbackQueue&&) noexcept = default;
  /// Ends the queue that this object had, as the destructor does.
  CallbackQueue& operator=(CallbackQueue&&) noexcept = default;

  /// A slot belongs to the operation and comes back in its completion; move it out to keep it
  /// longer than the callback. Other buffers are borrowed until then. `into` is memory that may be
  /// written, `from` memory that may be read: nothing checks that (buffer.h).
  template <CompletionCallback F>
  Status read(ByteOffset from, Target into, F&& callback, std::uint64_t tag = 0) noexcept {
    return read_bytes(from, into, detail::give<F>(callback), tag);
  }
  /// From the start of the block: as many bytes as `into` has.
  template <CompletionCallback F>
  Status read(Block from, Target into, F&& callback, std::uint64_t tag = 0) noexcept {
    return read_bytes(offset_of(from), into, detail::give<F>(callback), tag);
  }
  /// Fills the whole slot.
  template <CompletionCallback F>
  Status read(ByteOffset from, Slot&& into, F&& callback, std::uint64_t tag = 0) noexcept {
    return read_slot(from, into, detail::give<F>(callback), tag);
  }
  /// Fills the whole slot, from the start of the block.
  template <CompletionCallback F>
  Status read(Block from, Slot&& into, F&& callback, std::uint64_t tag = 0) noexcept {
    return read_slot(offset_of(from), into, detail::give<F>(callback), tag);
  }
  /// Writes all bytes of `from`.
  template <CompletionCallback F>
  Status write(ByteOffset to, Source from, F&& callback, std::uint64_t tag = 0) noexcept {
    return write_bytes(to, from, detail::give<F>(callback), tag);
  }
  /// Writes all bytes of `from`, from the start of the block.
  template <CompletionCallback F>
  Status write(Block to, Source from, F&& callback, std::uint64_t tag = 0) noexcept {
    return write_bytes(offset_of(to), from, detail::give<F>(callback), tag);
  }
  /// Writes the whole slot.
  template <CompletionCallback F>
  Status write(ByteOffset to, Slot&& from, F&& callback, std::uint64_t tag = 0) noexcept {
    return write_slot(to, from, detail::give<F>(callback), tag);
  }
  /// Writes the whole slot, from the start of the block.
  template <CompletionCallback F>
  Status write(Block to, Slot&& from, F&& callback, std::uint64_t tag = 0) noexcept {
    return write_slot(offset_of(to), from, detail::give<F>(callback), tag);
  }
  /// See Region::write_zeroes.
  template <CompletionCallback F>
  Status write_zeroes(ByteOffset at, std::uint64_t length_bytes, F&& callback,
                      std::uint64_t tag = 0) noexcept {
    return zero(at, length_bytes, detail::give<F>(callback), tag);
  }
  /// 8 bytes, 8-byte aligned, in the region's atomic domain. The value before is the
  /// old_value() of the completion: equal to `expected` means swapped.
  template <CompletionCallback F>
  Status compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired, F&& callback,
                      std::uint64_t tag = 0) noexcept {
    return swap(at, expected, desired, detail::give<F>(callback), tag);
  }
  /// As compare_swap(), but adds `delta`; the sum wraps at 2^64.
  template <CompletionCallback F>
  Status fetch_add(ByteOffset at, std::uint64_t delta, F&& callback,
                   std::uint64_t tag = 0) noexcept {
    return add(at, delta, detail::give<F>(callback), tag);
  }

  /// Takes all pairs as one operation, whose callback is called once, when all of them have ended:
  /// see Queue::read_many(). The callback also gets errors of misuse in a pair. Each pair counts as
  /// an operation in flight until it has ended. Errors: kWouldBlock (there is no room for all of
  /// them now), kLimitExceeded (more pairs than depth()), kInvalidArgument (no pairs, the number of
  /// `each`), kClosed. Nothing was taken then.
  template <CompletionCallback F>
  Status read_many(std::span<const ReadPair> pairs, F&& callback, std::span<ManyOutcome> each = {},
                   std::uint64_t tag = 0) noexcept {
    return read_pairs(pairs, detail::give<F>(callback), each, tag);
  }
  /// As read_many(); the local memory of a pair is only read.
  template <CompletionCallback F>
  Status write_many(std::span<const WritePair> pairs, F&& callback,
                    std::span<ManyOutcome> each = {}, std::uint64_t tag = 0) noexcept {
    return write_pairs(pairs, detail::give<F>(callback), each, tag);
  }
  /// As read_many(), with the rules of fetch_add() for each pair.
  template <CompletionCallback F>
  Status fetch_add_many(std::span<FetchAddPair> pairs, F&& callback,
                        std::span<ManyOutcome> each = {}, std::uint64_t tag = 0) noexcept {
    return add_pairs(pairs, detail::give<F>(callback), each, tag);
  }
  /// As read_many(), with the rules of compare_swap() for each pair.
  template <CompletionCallback F>
  Status compare_swap_many(std::span<CompareSwapPair> pairs, F&& callback,
                           std::span<ManyOutcome> each = {}, std::uint64_t tag = 0) noexcept {
    return swap_pairs(pairs, detail::give<F>(callback), each, tag);
  }

  /// QueueOptions::depth: the most operations in flight.
  [[nodiscard]] std::size_t depth() const noexcept;
  /// The approximate number of operations in flight; an operation whose callback runs does not
  /// count.
  [[nodiscard]] std::size_t size() const noexcept;

 private:
  using Given = detail::GivenCallback;
  [[nodiscard]] ByteOffset offset_of(Block block) const noexcept;
  Status read_bytes(ByteOffset from, Target into, Given given, std::uint64_t tag) noexcept;
  Status read_slot(ByteOffset from, Slot& into, Given given, std::uint64_t tag) noexcept;
  Status write_bytes(ByteOffset to, Source from, Given given, std::uint64_t tag) noexcept;
  Status write_slot(ByteOffset to, Slot& from, Given given, std::uint64_t tag) noexcept;
  Status read_pairs(std::span<const ReadPair> pairs, Given given, std::span<ManyOutcome> each,
                    std::uint64_t tag) noexcept;
  Status write_pairs(std::span<const WritePair> pairs, Given given, std::span<ManyOutcome> each,
                     std::uint64_t tag) noexcept;
  Status add_pairs(std::span<FetchAddPair> pairs, Given given, std::span<ManyOutcome> each,
                   std::uint64_t tag) noexcept;
  Status swap_pairs(std::span<CompareSwapPair> pairs, Given given, std::span<ManyOutcome> each,
                    std::uint64_t tag) noexcept;
  Status zero(ByteOffset at, std::uint64_t length_bytes, Given given, std::uint64_t tag) noexcept;
  Status swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired, Given given,
              std::uint64_t tag) noexcept;
  Status add(ByteOffset at, std::uint64_t delta, Given given, std::uint64_t tag) noexcept;

  detail::OwnedUnique<detail::CallbackCore, detail::CloseCallbacks> core_;
};

}  // namespace remora
