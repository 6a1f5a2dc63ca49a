#pragma once

/// A queue of operations on a volume: fill, `submit()`, `wait(n)`. Of a striped volume it has a
/// queue of the engine for each server, so that operations on all groups are in flight at once.
///
/// One owner: a queue and its completions belong to one thread at a time. Several queues of one
/// volume may be used from several threads at once, and share nothing but sessions. A call of
/// submit(), wait(), poll() or progress() during another such call of the same queue, in another
/// thread, changes nothing: submit() then answers kBusy, the others return no completions.
///
/// Operations in flight are unordered among each other. An operation within one stripe unit is one
/// operation of the engine, with its guarantees. A longer one is cut at stripe units: its parts are
/// operations of their own, on several servers, and when one of them fails, others may have taken
/// effect.
///
/// Each operation that was taken ends exactly once. An operation of one part ends within its
/// deadline plus two seconds. Of a longer one, parts that find no room in the queue are posted
/// later, none after the deadline or after a failed part; so it ends within twice its deadline plus
/// two seconds.
///
/// On a mirror, threads of the queue carry operations out: one for each operation in flight, at
/// most 8, each with up to 16 parts of one group at once. So at most 128 parts are in flight, reads
/// and writes of each group together; of atomics and parts of more than 128 KiB at most 8. The
/// other operations wait in the queue. Operations of one queue that overlap, unless both read, take
/// effect in the order of submit(). An operation ends within its deadline, the limit of one
/// operation on a member (3 s) and that of the store; the errors are those of Volume::write() and
/// Volume::read(). What is written in a queue after Volume::release() fails with kNoRight, what is
/// in flight ends first. Another client's claim ends operations with kAccessRefused, or with
/// kIndeterminate if they may have taken effect, both with Reason::kFenced.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <remora/engine/buffer.h>
#include <remora/engine/queue.h>
#include <remora/engine/types.h>
#include <remora/owned.h>
#include <remora/result.h>

namespace remora::volume {

namespace detail {
class MirrorQueue;
class VolumeQueueCore;

/// The capacity of a queue.
struct VolumeQueueRoom {
  std::size_t depth = 0;
  std::size_t left = 0;  ///< the depth less the operations in the queue
};
}  // namespace detail

/// The outcome of one operation. A value but for its error, which belongs to the queue and ends
/// with its next wait(), poll() or progress().
class VolumeCompletion {
 public:
  /// Of no operation: ok, tag 0.
  VolumeCompletion() noexcept = default;
  /// `error`: null on success; borrowed from the queue.
  VolumeCompletion(std::uint64_t tag, std::uint64_t old_value, const Error* error) noexcept
      : tag_{tag}, old_value_{old_value}, error_{error} {}

  /// True: all parts of the operation have taken effect.
  [[nodiscard]] bool ok() const noexcept { return error_ == nullptr; }
  /// Only when !ok(). The codes of remora::Completion::error(). The subject names volume, group and
  /// member; the place is that in the volume. Of several failed parts, the error of one;
  /// kIndeterminate if that is the error of any: Volume::settled() says when it is over.
  [[nodiscard]] const Error& error() const noexcept { return *error_; }
  /// The number that the caller gave with the operation.
  [[nodiscard]] std::uint64_t tag() const noexcept { return tag_; }
  /// The value before a compare-and-swap or fetch-and-add. Only when ok().
  [[nodiscard]] std::uint64_t old_value() const noexcept { return old_value_; }

 private:
  std::uint64_t tag_ = 0;
  std::uint64_t old_value_ = 0;
  const Error* error_ = nullptr;
};

/// The result of wait(), poll() and progress(); valid until the next such call of the queue.
using VolumeCompletions = std::span<const VolumeCompletion>;

/// See the top of this file. Made by Volume::queue(). The destructor submits nothing more, waits
/// for the operations in flight and drops the results.
///
/// A queue that was moved from takes no operations, and its other functions answer kClosed or
/// nothing; its depth() is 0.
class VolumeQueue {
 public:
  /// For Volume::queue().
  explicit VolumeQueue(std::unique_ptr<detail::VolumeQueueCore> core) noexcept;
  /// As above.
  explicit VolumeQueue(std::unique_ptr<detail::MirrorQueue> mirror) noexcept;
  ~VolumeQueue();
  VolumeQueue(VolumeQueue&&) noexcept;
  VolumeQueue& operator=(VolumeQueue&&) noexcept;

  /// Takes one operation; it is posted by the next submit(), or earlier with parts of an operation
  /// that was submitted before. False: the queue is full, and no operation was taken. All other
  /// misuse is reported by a completion. Never allocates. Local memory is borrowed until the
  /// completion; buffer.h has its rules, but for one: the last copy of a RegisteredMemory must
  /// exist until the completion, since parts are posted later.
  bool read(ByteOffset from, const Target& into, std::uint64_t tag = 0) noexcept {
    return static_cast<bool>(take_read(from, into, tag));
  }
  /// As above, from the start of the block.
  bool read(Block from, const Target& into, std::uint64_t tag = 0) noexcept;
  /// As read(): writes all bytes of `from`.
  bool write(ByteOffset to, const Source& from, std::uint64_t tag = 0) noexcept {
    return static_cast<bool>(take_write(to, from, tag));
  }
  /// As above, from the start of the block.
  bool write(Block to, const Source& from, std::uint64_t tag = 0) noexcept;
  /// As a write of this many zeroes, without a buffer.
  bool write_zeroes(ByteOffset at, std::uint64_t length_bytes, std::uint64_t tag = 0) noexcept;
  /// Region::flush_visible() on the session of each server: covers writes that had completed before
  /// submit(). Of a mirror it ends at once: such writes are visible to every reader.
  bool flush_visible(std::uint64_t tag = 0) noexcept;
  /// 8 bytes, 8-byte aligned.
  bool compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                    std::uint64_t tag = 0) noexcept;
  /// As compare_swap(), but adds `delta`; the sum wraps at 2^64.
  bool fetch_add(ByteOffset at, std::uint64_t delta, std::uint64_t tag = 0) noexcept;

  /// Posts all operations taken since the last submit(): one chain for each server. Errors: kBusy
  /// (another thread is in a call of this queue), kClosed. Completions report all others.
  Status submit() noexcept;
  /// Blocks until there are `at_least` completions, or all submitted operations have completed.
  VolumeCompletions wait(std::size_t at_least) noexcept;
  /// The operations that have completed by now. Never waits, but up to 50 ms for the reason with
  /// which a server has ended a session.
  VolumeCompletions poll() noexcept { return wait(0); }

  /// A descriptor that is readable when progress() has work, as Queue::event_fd(). Made by the
  /// first call; the queue owns it. Errors: kSystem (errno kept), kClosed.
  Result<int> event_fd() noexcept;
  /// As poll(); takes the events of event_fd() and arms it for the next one.
  VolumeCompletions progress() noexcept;
  /// Call progress() at that time, at the latest; time_point::max() if no operation is in flight.
  [[nodiscard]] std::chrono::steady_clock::time_point next_deadline() const noexcept;

  /// Operations that the queue can have; 0: moved from.
  [[nodiscard]] std::size_t depth() const noexcept { return room_->depth; }
  /// The number of operations taken whose completions have not been handed out yet.
  [[nodiscard]] std::size_t size() const noexcept { return room_->depth - room_->left; }
  /// True: the next operation is refused until a completion is handed out.
  [[nodiscard]] bool full() const noexcept { return room_->left == 0; }

 private:
  /// The ticket is that of the engine's queue, or another one that is true. False: not taken.
  Ticket take_read(ByteOffset from, const Target& into, std::uint64_t tag) noexcept;
  Ticket take_write(ByteOffset to, const Source& from, std::uint64_t tag) noexcept;
  [[nodiscard]] ByteOffset offset_of(Block block) const noexcept;
  remora::detail::OwnedUnique<detail::VolumeQueueCore> core_;  ///< of a striped volume
  remora::detail::OwnedUnique<detail::MirrorQueue> mirror_;
  const detail::VolumeQueueRoom* room_;  ///< the core's
};

}  // namespace remora::volume
