#pragma once

/// Many small operations in one call: up to kMaxMany pairs of a place in a region and local memory.
/// A synchronous call takes no ticket, no slot and no place in a queue. See Region::read_many() and
/// its neighbours for pairs of one region, and read_many() below for pairs of several regions of
/// one session.
///
/// A Queue and a CallbackQueue take pairs, too, as one operation with one completion: see
/// Queue::read_many(), CallbackQueue::read_many(). Each pair has a place of the queue there, and
/// the pairs go as other operations of the queue do.
///
/// **Each pair is an operation of its own.** A call of n pairs does what n operations of a Queue
/// do, with the same guarantees (docs/guarantees.md):
///
/// - The pairs are unordered among each other. Pairs that are neighbours in the region and in local
///   memory may go as one request.
/// - Each pair ends exactly once, within the deadline of the call plus two seconds (with the
///   exception over rdma of docs/guarantees.md). When the call returns, neither a device nor the
///   engine touches the memory of any pair.
/// - Misuse in one pair (bytes outside of the region, no bytes, a misaligned atomic, a missing
///   right) ends that pair alone, before anything of it is sent. The other pairs are carried out.
/// - Where a fence or a removal revokes the grant in the middle of a call, pairs that were
///   posted before may still take effect, until the fence returns, and all later ones are refused
///   with kAccessRefused.
/// - Where the lane breaks in the middle, reads that were posted go again on the next lane, within
///   the deadline (over rdma those of slots and registered memory; other reads end with
///   kConnectionLost, without effect). Writes and atomics that were posted are kIndeterminate, each
///   of them, and none is repeated. Pairs that were not posted wait for the next lane; if there is
///   none within the deadline, they end without remote effect.
/// - When the deadline passes, pairs that were not posted are kTimedOut, without remote effect.
///   Pairs that were posted break their lane, as other operations do.
///
/// **One status for all.** A call returns ok when every pair is ok. Else it returns the error of
/// the failed pair that stands first; its subject has the index of the pair, from 0 on: "cache,
/// pair 17". ManyOptions::each takes the outcome of every pair.
///
/// **Rules for local memory** are those of buffer.h, for each pair: slots, registered memory, any
/// other bytes. Memory of several pairs may overlap, with the result that buffer.h states. A
/// `Target` in pieces is not possible.
///
/// **How the pairs travel.** Over shm the calling thread copies them, and fetches the next ones
/// from memory meanwhile. Over rdma and tcp, pairs are posted as one chain with one doorbell (over
/// tcp: one gathered send), as far as the send queue has room, and at most kManyInFlight at a time;
/// the rest follows as pairs complete. One lane of the session carries the call.
///
/// **Threads.** Any number of threads may call at once. The arrays of pairs and outcomes belong to
/// the call until it returns. The calls block; docs/blocking.md says for how long. The first calls
/// of a session, and calls of more threads at once than before, allocate memory; other calls
/// allocate nothing.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include <remora/engine/buffer.h>
#include <remora/engine/types.h>
#include <remora/result.h>

namespace remora {

class Region;

/// Most pairs of one call, of all its regions together.
inline constexpr std::size_t kMaxMany = 65536;
/// Most pairs of one call that are posted and not completed, over rdma and tcp.
inline constexpr std::size_t kManyInFlight = 256;

/// A read of bytes of the region into local memory.
struct ReadPair {
  ByteOffset from;
  Target into;
};

/// A write of local memory to the region.
struct WritePair {
  ByteOffset to;
  Source from;
};

/// 8 bytes, 8-byte aligned, in the region's atomic domain. Wraps at 2^64.
struct FetchAddPair {
  ByteOffset at{};
  std::uint64_t delta = 0;
  /// Set by the call: what stood there before. Unspecified where the pair is not ok.
  std::uint64_t before = 0;
};

/// 8 bytes, 8-byte aligned, in the region's atomic domain.
struct CompareSwapPair {
  ByteOffset at{};
  std::uint64_t expected = 0;
  std::uint64_t desired = 0;
  /// Set by the call: what stood there before; equal to `expected` means swapped. Unspecified where
  /// the pair is not ok.
  std::uint64_t before = 0;
};

/// How one pair ended. Completion::error() describes the codes.
struct ManyOutcome {
  bool ok = true;
  Code code = Code::kInternal;  ///< only when !ok
  Reason reason = Reason::kNone;
  CompletionStatus status = CompletionStatus::kSuccess;
};

struct ManyOptions {
  /// For the whole call; zero takes the engine's default. See kDeadlineFloor.
  std::chrono::nanoseconds deadline{0};
  /// Empty, or as many as the call has pairs: takes the outcome of each pair, by its index. With
  /// several regions the indexes go on from one region to the next. Not written where the call is
  /// refused as a whole.
  std::span<ManyOutcome> each{};
};

/// Pairs of one of several regions.
struct RegionReads {
  const Region* region = nullptr;
  std::span<const ReadPair> pairs{};
};
struct RegionWrites {
  const Region* region = nullptr;
  std::span<const WritePair> pairs{};
};
struct RegionFetchAdds {
  const Region* region = nullptr;
  std::span<FetchAddPair> pairs{};
};
struct RegionCompareSwaps {
  const Region* region = nullptr;
  std::span<CompareSwapPair> pairs{};
};

/// As Region::read_many(), for pairs of several regions of one session. Also with no regions, and
/// with regions without pairs.
/// Errors of the call as a whole, before anything is sent: kLimitExceeded (kMaxMany),
/// kInvalidArgument (the number of `each`, no region, a region of another session), kClosed,
/// kOutOfMemory. Else the error of the first failed pair.
Status read_many(std::span<const RegionReads> regions, const ManyOptions& options = {});
Status write_many(std::span<const RegionWrites> regions, const ManyOptions& options = {});
Status fetch_add_many(std::span<const RegionFetchAdds> regions, const ManyOptions& options = {});
Status compare_swap_many(std::span<const RegionCompareSwaps> regions,
                         const ManyOptions& options = {});

}  // namespace remora
