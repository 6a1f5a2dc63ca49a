#pragma once

/// One operation in flight: its request, its progress and its outcome.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

#include <remora/assert.h>
#include <remora/engine/queue.h>
#include <remora/result.h>

#include "base/clock.h"
#include "client/datapath/event_notifier.h"
#include "client/datapath/local_memory.h"
#include "transport/registration_cache.h"
#include "transport/wire_extent.h"
#include "transport/work_request.h"

namespace remora::detail {

struct OperationRecord;

/// Knows the region of each of its operations.
class OperationOwner {
 public:
  OperationOwner() = default;
  virtual ~OperationOwner() = default;
  OperationOwner(const OperationOwner&) = delete;
  OperationOwner& operator=(const OperationOwner&) = delete;
  /// The Error of an operation that has failed. By the owner's thread.
  [[nodiscard]] virtual Error error_of(const OperationRecord& operation) const noexcept = 0;
};

/// Takes finished operations: a ring that one thread at a time fills, the thread that moves the
/// lane, and that its owner empties without a lock. After push() the records and the sink belong to
/// the owner again.
class CompletionSink {
 public:
  /// Operations that ended together, chained by next.
  struct Run {
    OperationRecord* first;
    std::size_t count;
  };

  /// `ring`: its size is a power of two, at least the number of operations that are submitted to
  /// this sink and not taken. Borrowed.
  /// `owner`: the owner of the operations; null where they end in the call that submits them.
  /// Borrowed.
  explicit CompletionSink(std::span<Run> ring, const OperationOwner* owner = nullptr) noexcept
      : ring_{ring.data()}, mask_{ring.size() - 1}, owner_{owner} {}
  CompletionSink(const CompletionSink&) = delete;
  CompletionSink& operator=(const CompletionSink&) = delete;

  /// From now on a thread that pushes also tells this notifier, before it releases the lane. By the
  /// owner, before it submits, or if it looks at the sink again afterwards. Borrowed: see
  /// LaneDriver::settle_events().
  void watch(EventNotifier& notifier) noexcept {
    notifier_.store(&notifier, std::memory_order_relaxed);
  }
  [[nodiscard]] const OperationOwner* owner() const noexcept { return owner_; }
  /// The notifier to tell, or null.
  [[nodiscard]] EventNotifier* notifier() const noexcept {
    return notifier_.load(std::memory_order_relaxed);
  }

  /// Gives the owner `first` and the operations chained behind it, `count` in all.
  void push(OperationRecord& first, std::size_t count = 1) noexcept {
    ring_[runs_pushed_++ & mask_] = {&first, count};
    // The last access to the records and to this.
    pushed_.store(pushed_.load(std::memory_order_relaxed) + count, std::memory_order_release);
  }
  /// Operations that take_run() will give, in one run or several.
  [[nodiscard]] std::size_t ready() const noexcept {
    return pushed_.load(std::memory_order_acquire) - taken_;
  }
  /// Only while ready() is not 0. The operations of a run ended in the order of their chain.
  [[nodiscard]] Run take_run() noexcept {
    REMORA_ASSERT_HOT(ready() != 0, "a run is taken while one is there");
    const Run run = ring_[runs_taken_++ & mask_];
    taken_ += run.count;
    return run;
  }

 private:
  Run* ring_;
  std::size_t mask_;
  const OperationOwner* owner_;
  std::size_t taken_ = 0;
  std::size_t runs_taken_ = 0;
  alignas(64) std::atomic<std::size_t> pushed_{0};
  std::size_t runs_pushed_ = 0;
  std::atomic<EventNotifier*> notifier_{nullptr};
};

/// How an operation ended: success, or a code with its details.
struct Outcome {
  bool ok = true;
  Code code = Code::kInternal;
  Reason reason = Reason::kNone;
  CompletionStatus status = CompletionStatus::kSuccess;
  /// Of a completion: the vendor's error. Of local memory in pieces: the number of the wrong piece,
  /// from 1 on; if there are too many, their count. Else errno, or 0.
  std::uint32_t detail = 0;

  static Outcome failure(Code code, Reason reason = Reason::kNone) noexcept {
    return {.ok = false, .code = code, .reason = reason};
  }
};

[[nodiscard]] constexpr bool refused_by_peer(CompletionStatus status) noexcept {
  return status == CompletionStatus::kRemoteAccessError ||
         status == CompletionStatus::kRemoteInvalidRequest;
}

/// The client's own memory or request is wrong, so the server has not seen the request. Not
/// kLocalQpOperationError: rxe also reports it when the link is down and it cannot send a request
/// *again*.
[[nodiscard]] constexpr bool local_fault(CompletionStatus status) noexcept {
  return status == CompletionStatus::kLocalLengthError ||
         status == CompletionStatus::kLocalProtectionError ||
         status == CompletionStatus::kLocalAccessError;
}

[[nodiscard]] constexpr Operation operation_name(transport::Opcode opcode) noexcept {
  switch (opcode) {
    case transport::Opcode::kRead: return "read";
    case transport::Opcode::kWrite: return "write";
    case transport::Opcode::kCompareSwap: return "compare_swap";
    case transport::Opcode::kFetchAdd: return "fetch_add";
    case transport::Opcode::kWriteZeroes: return "write_zeroes";
    case transport::Opcode::kNotify: return "write_notify";
    case transport::Opcode::kFlush: return "flush_visible";
  }
  return "operation";
}

using transport::is_atomic;

/// The extent that holds the byte at `offset`, which is within the region.
[[nodiscard]] inline const transport::WireExtent& extent_of(
    std::span<const transport::WireExtent> extents, std::uint64_t offset) noexcept {
  if (extents.size() == 1) return extents.front();
  const auto after = std::upper_bound(extents.begin(), extents.end(), offset,
                                      [](std::uint64_t at, const transport::WireExtent& extent) {
                                        return at < extent.start_bytes;
                                      });
  return *std::prev(after);
}

/// Owned by its submitter, in a queue's table or on a synchronous caller's stack. The submitter
/// does not touch it from submission until it is in its sink. exception: one record has all that an
/// operation needs, since the data path allocates nothing and no part may stand behind a pointer.
struct OperationRecord {
  OperationRecord* next;  ///< in the submitted list, then in the driver's backlog

  /// Opcode, local memory (a write's bytes are only read) and operands. If the operation is
  /// `whole`, the driver posts this request; else it makes requests from it.
  transport::WorkRequest request;
  std::uint64_t length_bytes;
  std::uint64_t offset_bytes;  ///< in the region
  /// Null: memory that is not registered, and is bounced where a key is needed. In a table,
  /// name_memory() and name_several() write it.
  LocalMemory* memory;
  Clock::time_point submitted;
  Deadline deadline;
  CompletionSink* sink;
  bool whole = false;  ///< see make_whole()
  /// This operation and the one before it in the list are whole transfers of one submission, with
  /// the same opcode and sink. The driver moves such a chain as one, by its first operation.
  bool follows = false;

  // How it ended.
  Outcome outcome;
  std::uint64_t old_value;

  /// The progress of an operation that is not whole: it is cut at extents, pieces and the lane's
  /// limits, or bounced. Only make_split() initialises these members.
  std::span<const transport::WireExtent> extents;
  const void* pieces;             ///< Targets of a read, Sources of a write; null: one piece
  LocalMemory* piece_memory;      ///< of the current piece
  std::uint64_t piece_end_bytes;  ///< where the current piece ends, in bytes of the operation
  std::uint64_t pieces_begun;
  std::uint64_t planned_bytes;  ///< bytes that have their work requests
  transport::MemoryLease
      lease;  ///< of memory that is not registered: see LaneDriver::acquire_lease()
  std::uint64_t notice_grant;  ///< the grant, if the write notifies the server; else 0
  std::uint32_t notice_tag;
  bool notice_planned;
  bool part;  ///< of a striped transfer, which counts the whole operation
  std::uint32_t requests_in_flight;
  bool any_posted;

  /// For a release of registered memory, which reads tables in any thread (memory_releaser.h).

  /// Stands for the memory of an operation in pieces.
  static LocalMemory* several_memories() noexcept {
    static LocalMemory several{std::span<std::byte>{}};
    return &several;
  }
  /// While it is not null, the queue has taken the operation and has not handed it out.
  void name_memory(LocalMemory* named) noexcept {
    __atomic_store_n(&memory, named, __ATOMIC_RELAXED);
  }
  /// For an operation in pieces, which was taken after `releases` releases: a later release may be
  /// of its memory.
  void name_several(std::uint64_t releases) noexcept {
    __atomic_store_n(&releases_before, releases, __ATOMIC_RELAXED);
    __atomic_store_n(&memory, several_memories(), __ATOMIC_RELEASE);
  }
  [[nodiscard]] bool names(const LocalMemory& released) const noexcept {
    const LocalMemory* const named = __atomic_load_n(&memory, __ATOMIC_ACQUIRE);
    if (named != several_memories()) return named == &released;
    return __atomic_load_n(&releases_before, __ATOMIC_RELAXED) < released.released();
  }
  std::uint64_t releases_before;
};

/// Whether `later` of one queue may be marked as following `earlier`: see OperationRecord::follows.
[[nodiscard]] inline bool may_follow(const OperationRecord& earlier,
                                     const OperationRecord& later) noexcept {
  return earlier.whole && later.whole && earlier.request.opcode == later.request.opcode &&
         transport::is_transfer(later.request.opcode) && earlier.submitted == later.submitted;
}

/// Makes `operation`, which lies within its region, a single request. False: it lies in several
/// extents, or is longer than one request may be. The caller sets the local key.
[[gnu::always_inline]] inline bool make_whole(OperationRecord& operation,
                                              std::span<const transport::WireExtent> extents,
                                              std::uint64_t request_bytes_max) noexcept {
  const transport::WireExtent& extent = extent_of(extents, operation.offset_bytes);
  const std::uint64_t into = operation.offset_bytes - extent.start_bytes;
  if (operation.length_bytes > std::min(request_bytes_max, extent.length_bytes - into))
    return false;
  operation.request.remote_address = extent.remote_address + into;
  operation.request.remote_key = extent.remote_key;
  operation.request.length_bytes = static_cast<std::uint32_t>(operation.length_bytes);
  operation.whole = true;
  return true;
}

/// Has the driver cut `operation` into requests when it posts it.
inline void make_split(OperationRecord& operation,
                       std::span<const transport::WireExtent> extents) noexcept {
  operation.whole = false;
  operation.extents = extents;
  operation.pieces = nullptr;
  operation.piece_memory = operation.memory;
  operation.piece_end_bytes = operation.length_bytes;
  operation.pieces_begun = 0;
  operation.planned_bytes = 0;
  operation.lease = {};
  operation.notice_grant = 0;
  operation.notice_planned = false;
  operation.part = false;
  operation.requests_in_flight = 0;
  operation.any_posted = false;
}

/// Nothing of an operation that is not whole, nor in pieces, has been posted any more. Its lease
/// stays.
inline void begin_again(OperationRecord& operation) noexcept {
  if (operation.request.local != nullptr) operation.request.local -= operation.planned_bytes;
  operation.piece_memory = operation.memory;
  operation.piece_end_bytes = operation.length_bytes;
  operation.pieces_begun = 0;
  operation.planned_bytes = 0;
  operation.requests_in_flight = 0;
  operation.any_posted = false;
}

/// Every request of an operation that is not whole has been made.
[[nodiscard]] inline bool all_planned(const OperationRecord& operation) noexcept {
  return operation.planned_bytes == operation.length_bytes &&
         (operation.notice_grant == 0 || operation.notice_planned);
}

/// Local memory of the next bytes of an operation that is not whole. Empty at its end.
struct LocalPiece {
  std::byte* bytes = nullptr;
  std::uint64_t length_bytes = 0;
  LocalMemory* memory = nullptr;
};
inline LocalPiece next_piece(OperationRecord& operation) noexcept {
  if (operation.pieces != nullptr && operation.planned_bytes == operation.piece_end_bytes &&
      operation.planned_bytes != operation.length_bytes) {
    const auto begin = [&](const auto& piece) {
      // The record has one pointer for both directions; a write's bytes are only read.
      operation.request.local = const_cast<std::byte*>(piece.bytes().data());
      operation.piece_memory = piece.memory();
      operation.piece_end_bytes += piece.bytes().size();
    };
    if (operation.request.opcode == transport::Opcode::kRead)
      begin(static_cast<const Target*>(operation.pieces)[operation.pieces_begun]);
    else
      begin(static_cast<const Source*>(operation.pieces)[operation.pieces_begun]);
    ++operation.pieces_begun;
  }
  return {operation.request.local, operation.piece_end_bytes - operation.planned_bytes,
          operation.piece_memory};
}
/// The next `length_bytes` of that piece have their requests.
inline void advance(OperationRecord& operation, std::uint64_t length_bytes) noexcept {
  REMORA_ASSERT_HOT(length_bytes <= operation.length_bytes - operation.planned_bytes,
                    "the requests of an operation end where it ends");
  operation.planned_bytes += length_bytes;
  if (operation.request.local != nullptr) operation.request.local += length_bytes;
}

/// Operations chained by `next`, in the order in which they came.
struct OperationList {
  OperationRecord* first = nullptr;
  OperationRecord* last = nullptr;
  std::size_t count = 0;

  [[nodiscard]] bool empty() const noexcept { return first == nullptr; }
  void append(OperationRecord& operation) noexcept {
    operation.next = nullptr;
    (first == nullptr ? first : last->next) = &operation;
    last = &operation;
    ++count;
  }
  /// Takes over all of `other`, which is left empty.
  void splice(OperationList& other) noexcept {
    if (other.empty()) return;
    (first == nullptr ? first : last->next) = other.first;
    last = other.last;
    count += std::exchange(other, {}).count;
  }
  /// Only while it is not empty.
  OperationRecord& take_first() noexcept {
    REMORA_ASSERT_HOT(first != nullptr && count != 0, "a list counts its operations");
    OperationRecord& operation = *first;
    first = operation.next;
    if (first == nullptr) last = nullptr;
    --count;
    return operation;
  }
  /// Removes the first `taken_count` operations; `after` is the operation behind them, or null.
  void drop_first(std::size_t taken_count, OperationRecord* after) noexcept {
    REMORA_ASSERT_HOT(taken_count <= count && (after == nullptr) == (taken_count == count),
                      "a list counts its operations");
    first = after;
    if (after == nullptr) last = nullptr;
    count -= taken_count;
  }
  /// Removes the operations for which `wanted` is true, in order; gives them to `taken`.
  template <typename Wanted, typename Taken>
  void extract(Wanted wanted, Taken taken) noexcept {
    OperationList kept;
    bool gap = false;
    while (!empty()) {
      OperationRecord& operation = take_first();
      if (wanted(operation)) {
        gap = true;
        taken(operation);
      } else {
        if (std::exchange(gap, false)) operation.follows = false;
        kept.append(operation);
      }
    }
    *this = kept;
  }
  [[nodiscard]] bool contains(const OperationRecord& operation) const noexcept {
    const OperationRecord* at = first;
    while (at != nullptr && at != &operation) at = at->next;
    return at != nullptr;
  }
  /// False when it is not in the list; `after`, where given, becomes the operation behind it, or
  /// null.
  bool remove(OperationRecord& operation, OperationRecord** after = nullptr) noexcept {
    bool found = false;
    extract([&](const OperationRecord& each) { return &each == &operation; },
            [&](OperationRecord&) {
              found = true;
              if (after != nullptr) *after = first;
            });
    return found;
  }
};

}  // namespace remora::detail
