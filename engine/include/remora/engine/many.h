#pragma once

/// Many small operations in one call: up to kMaxMany pairs of a place in a region and local memory.
/// A synchronous call takes no ticket, no slot and no place in a queue. See Region::read_many() and
/// its neighbours for pairs of one region, and read_many() below for pairs of several regions of
/// one session.
///
/// A Queue and a CallbackQueue take pairs, too, as one operation with one completion: see
/// Queue::read_many(), CallbackQueue::read_many(). There each pair has a place of the queue, and is
/// sent as other operations of the queue are.
///
/// **Each pair is an operation of its own.** A call of n pairs has the effect of n operations of a
/// Queue, with the same guarantees (docs/guarantees.md):
///
/// - The pairs are unordered among each other. Pairs that are neighbours in the region and in local
///   memory may be sent as one request.
/// - Each pair ends exactly once, within the deadline of the call plus two seconds (with the
///   exception over rdma of docs/guarantees.md). When the call returns, neither a device nor the
///   engine touches the memory of any pair.
/// - Misuse in one pair (bytes outside of the region, no bytes, a misaligned atomic, a missing
///   right) ends that pair alone, before anything of it is sent. The other pairs are carried out.
/// - If a fence or a removal revokes the grant during a call, pairs that were posted before may
///   still take effect until the fence returns, and all later pairs are refused with
///   kAccessRefused.
/// - If the lane breaks during a call, posted reads are repeated on the next lane, within the
///   deadline (over rdma those of slots and registered memory; other reads end with
///   kConnectionLost, without effect). Each posted write or atomic ends as kIndeterminate, and none
///   is repeated. Pairs that were not posted wait for the next lane; if there is none within the
///   deadline, they end without remote effect.
/// - When the deadline passes, pairs that were not posted are kTimedOut, without remote effect.
///   Pairs that were posted break their lane, as other operations do.
///
/// **One status for all.** A call returns ok when every pair is ok. Otherwise it returns the error
/// of the first failed pair in the array; its subject has the index of the pair, from 0 on: "cache,
/// pair 17". ManyOptions::each takes the outcome of every pair.
///
/// **Rules for local memory** are those of buffer.h, for each pair: slots, registered memory, any
/// other bytes. Memory of several pairs may overlap, with the result that buffer.h states. A
/// `Target` in pieces is not possible.
///
/// **How the pairs travel.** Over shm the calling thread copies them, and prefetches the next ones
/// meanwhile. Over rdma and tcp, pairs are posted as one chain with one doorbell (over tcp: one
/// gathered send), as far as the send queue has room, and at most kManyInFlight at a time; the rest
/// follows as pairs complete. One lane of the session carries the call.
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

/// The most pairs of one call, of all its regions together.
inline constexpr std::size_t kMaxMany = 65536;
/// The most pairs of one call that are posted and not completed, over rdma and tcp.
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
  /// Set by the call: the value before. Unspecified if the pair is not ok.
  std::uint64_t before = 0;
};

/// 8 bytes, 8-byte aligned, in the region's atomic domain.
struct CompareSwapPair {
  ByteOffset at{};
  std::uint64_t expected = 0;
  std::uint64_t desired = 0;
  /// Set by the call: the value before; equal to `expected` means swapped. Unspecified if the pair
  /// is not ok.
  std::uint64_t before = 0;
};

/// The outcome of one pair. Completion::error() describes the codes.
struct ManyOutcome {
  bool ok = true;
  Code code = Code::kInternal;  ///< only when !ok
  Reason reason = Reason::kNone;
  CompletionStatus status = CompletionStatus::kSuccess;
};

/// The options of one call.
struct ManyOptions {
  /// For the whole call; zero takes the engine's default. See kDeadlineFloor.
  std::chrono::nanoseconds deadline{0};
  /// Empty, or as many as the call has pairs: gets the outcome of each pair, by its index. With
  /// several regions the indexes continue from one region to the next. Not written if the call is
  /// refused as a whole.
  std::span<ManyOutcome> each{};
};

/// The pairs of one of several regions.
struct RegionReads {
  const Region* region = nullptr;  ///< not null in a call; borrowed until it returns
  std::span<const ReadPair> pairs{};
};
/// As RegionReads.
struct RegionWrites {
  const Region* region = nullptr;
  std::span<const WritePair> pairs{};
};
/// As RegionReads; the call sets the values before.
struct RegionFetchAdds {
  const Region* region = nullptr;
  std::span<FetchAddPair> pairs{};
};
/// As RegionReads; the call sets the values before.
struct RegionCompareSwaps {
  const Region* region = nullptr;
  std::span<CompareSwapPair> pairs{};
};

/// As Region::read_many(), for pairs of several regions of one session. No regions, or regions
/// without pairs, are allowed. Errors of the call as a whole, before anything is sent:
/// kLimitExceeded (kMaxMany), kInvalidArgument (the number of `each`, no region, a region of
/// another session), kClosed, kOutOfMemory. Else the error of the first failed pair.
Status read_many(std::span<const RegionReads> regions, const ManyOptions& options = {});
/// As read_many() over several regions; the local memory of a pair is only read.
Status write_many(std::span<const RegionWrites> regions, const ManyOptions& options = {});
/// As read_many() over several regions, with the rules of Region::fetch_add() for each pair.
Status fetch_add_many(std::span<const RegionFetchAdds> regions, const ManyOptions& options = {});
/// As read_many() over several regions, with the rules of Region::compare_swap() for each pair.
Status compare_swap_many(std::span<const RegionCompareSwaps> regions,
                         const ManyOptions& options = {});

}  // namespace remora
