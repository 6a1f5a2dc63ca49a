#pragma once

/// One operation in flight: its request, its progress and its outcome.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

#include <remora/assert.h>
#include <remora/engine/queue.h>
#include <remora/result.h>

#include "base/clock.h"
#include "client/datapath/completion_sink.h"
#include "client/datapath/local_memory.h"
#include "transport/notice.h"
#include "transport/registration_cache.h"
#include "transport/wire_extent.h"
#include "transport/work_request.h"

namespace remora::detail {

/// How an operation ended: success, or a code with its details.
struct Outcome {
  bool ok = true;
  Code code = Code::kInternal;
  Reason reason = Reason::kNone;
  CompletionStatus status = CompletionStatus::kSuccess;
  /// Of a completion: the vendor's error. Of local memory in pieces: the number of the invalid
  /// piece, from 1 on, or the number of pieces if there are too many. Otherwise errno, or 0.
  std::uint32_t detail = 0;

  static Outcome failure(Code code, Reason reason = Reason::kNone) noexcept {
    return {.ok = false, .code = code, .reason = reason};
  }
};

[[nodiscard]] constexpr bool refused_by_peer(CompletionStatus status) noexcept {
  return status == CompletionStatus::kRemoteAccessError ||
         status == CompletionStatus::kRemoteInvalidRequest;
}

/// Whether the client's own memory or request is invalid, so that the server has not seen the
/// request. Not kLocalQpOperationError: rxe also reports it when the link is down and it cannot
/// send a request again.
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

/// The extent that contains the byte at `offset`, which is within the region.
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
/// does not touch it from submission until it is in its sink. One record has all that an operation
/// needs, since the data path allocates nothing and no part may stand behind a pointer.
struct OperationRecord {
  OperationRecord* next;  ///< in the submitted list, then in the driver's backlog

  /// Opcode, local memory (of a write the driver only reads it) and operands. If the operation is
  /// `whole`, the driver posts this request, else requests that it makes from this one.
  transport::WorkRequest request;
  std::uint64_t length_bytes;
  std::uint64_t offset_bytes;  ///< in the region
  /// Null: the memory is not registered, and the driver copies its bytes through bounce slots if
  /// the lane needs a key. In a table, only name_memory() and name_several() write it.
  LocalMemory* memory;
  Clock::time_point submitted;
  Deadline deadline;
  CompletionSink* sink;
  bool whole = false;  ///< see make_whole()
  /// This operation and the operation before it in the list are whole transfers of one submission,
  /// with the same opcode and sink. The driver moves such a chain as a unit, by its first
  /// operation.
  bool follows = false;

  // How it ended.
  Outcome outcome;
  std::uint64_t old_value;

  /// The progress of an operation that is not whole: the driver cuts it at extents, at pieces and
  /// at the lane's limits, or copies through bounce slots. Only make_split() initialises these
  /// members.
  std::span<const transport::WireExtent> extents;
  const void* pieces;             ///< Targets of a read, Sources of a write; null: one piece
  LocalMemory* piece_memory;      ///< memory of the current piece
  std::uint64_t piece_end_bytes;  ///< end of the current piece, in bytes of the operation
  std::uint64_t pieces_begun;
  std::uint64_t planned_bytes;   ///< bytes for which requests have been made
  transport::MemoryLease lease;  ///< of unregistered memory: see LaneDriver::acquire_lease()
  transport::Notice notice;      ///< of a write that notifies the server; else its grant is 0
  bool notice_planned;
  bool part;  ///< a part of a striped transfer, which counts the whole operation
  std::uint32_t requests_in_flight;
  bool any_posted;

  /// For the release of registered memory, which reads tables in any thread (memory_releaser.h):

  /// Stands for the memory of an operation in pieces.
  static LocalMemory* several_memories() noexcept {
    static LocalMemory several{std::span<std::byte>{}};
    return &several;
  }
  /// Not null from the time when the queue takes the operation until it hands the completion out.
  void name_memory(LocalMemory* named) noexcept {
    __atomic_store_n(&memory, named, __ATOMIC_RELAXED);
  }
  /// For an operation in pieces that was taken after `releases` releases: later releases may be of
  /// its memory.
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

/// Whether `later`, of the same queue, may be marked as following `earlier`: see
/// OperationRecord::follows.
[[nodiscard]] inline bool may_follow(const OperationRecord& earlier,
                                     const OperationRecord& later) noexcept {
  return earlier.whole && later.whole && earlier.request.opcode == later.request.opcode &&
         transport::is_transfer(later.request.opcode) && earlier.submitted == later.submitted;
}

/// Makes a single request of `operation`, which lies within its region. False: it lies in several
/// extents, or is longer than a request may be. The caller sets the local key.
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

/// Makes the driver cut `operation` into requests when it posts it.
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
  operation.notice.grant_id = 0;
  operation.notice_planned = false;
  operation.part = false;
  operation.requests_in_flight = 0;
  operation.any_posted = false;
}

/// Resets the progress of an operation that is neither whole nor in pieces, as if nothing had been
/// posted. Keeps its lease.
inline void begin_again(OperationRecord& operation) noexcept {
  if (operation.request.local != nullptr) operation.request.local -= operation.planned_bytes;
  operation.piece_memory = operation.memory;
  operation.piece_end_bytes = operation.length_bytes;
  operation.pieces_begun = 0;
  operation.planned_bytes = 0;
  operation.requests_in_flight = 0;
  operation.any_posted = false;
}

/// Whether all requests of an operation that is not whole have been made.
[[nodiscard]] inline bool all_planned(const OperationRecord& operation) noexcept {
  return operation.planned_bytes == operation.length_bytes &&
         (operation.notice.grant_id == 0 || operation.notice_planned);
}

/// The local memory of the next bytes of an operation that is not whole. Empty at the operation's
/// end.
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
/// The next `length_bytes` of the piece have their requests.
inline void advance(OperationRecord& operation, std::uint64_t length_bytes) noexcept {
  REMORA_ASSERT_HOT(length_bytes <= operation.length_bytes - operation.planned_bytes,
                    "the requests of an operation end where it ends");
  operation.planned_bytes += length_bytes;
  if (operation.request.local != nullptr) operation.request.local += length_bytes;
}

}  // namespace remora::detail
