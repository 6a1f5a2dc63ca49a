#include "client/region/many_call.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include <remora/assert.h>

#include "client/datapath/client_metrics.h"
#include "client/datapath/end_tally.h"
#include "client/datapath/mapped_access.h"
#include "client/services/engine_services.h"
#include "client/session/session_core.h"

namespace remora::detail {

using transport::Opcode;

namespace {

constexpr std::uint32_t kPairLineBytes = 64;
/// Length of the beginning of a pair's remote bytes that is prefetched before the copy.
constexpr std::size_t kPairFetchBytes = 256;
/// A round of copies ends after this many bytes: then the prefetched bytes are still in the L1
/// cache, and a revocation does not wait long.
constexpr std::size_t kCopyRoundBytes = std::size_t{16} << 10U;
/// Longer pairs are single operations, which check the deadline and the server while they copy.
constexpr std::size_t kMaxCopyBytes = std::size_t{64} << 10U;
/// Number of copies in one round.
constexpr std::size_t kMaxCopies = 64;
/// The call fills records again when fewer than this number are in flight: then half of them are
/// free, and chains stay long.
constexpr std::size_t kRefillBelow = kManyInFlight / 2;

constexpr Outcome kPairExpired{.ok = false, .code = Code::kTimedOut, .reason = Reason::kExpired};

[[gnu::always_inline]] inline void fetch_pair(Opcode opcode, const std::byte* remote,
                                              std::size_t length_bytes) noexcept {
  if (length_bytes <= kPairLineBytes) [[likely]] {
    if (opcode == Opcode::kRead)
      __builtin_prefetch(remote, 0);
    else
      __builtin_prefetch(remote, 1);
    return;
  }
  const std::size_t length = std::min(length_bytes, kPairFetchBytes);
  if (opcode == Opcode::kRead)
    for (std::size_t i = 0; i < length; i += kPairLineBytes) __builtin_prefetch(remote + i, 0);
  else
    for (std::size_t i = 0; i < length; i += kPairLineBytes) __builtin_prefetch(remote + i, 1);
}

/// Most small values are one line long; a copy of a constant length needs no call.
[[gnu::always_inline]] inline void copy_pair(std::byte* to, const std::byte* from,
                                             std::size_t length_bytes) noexcept {
  if (length_bytes == kPairLineBytes)
    std::memcpy(to, from, kPairLineBytes);
  else
    std::memcpy(to, from, length_bytes);
}

}  // namespace

template <typename Pair>
void ManyCall::add(const RegionGrant& region, std::span<Pair> pairs) noexcept {
  if constexpr (transport::is_transfer(kOpcodeOf<Pair>))
    if (mapped_) return add_copies(region, pairs);
  add_records(region, pairs);
}

/// Not inline, so that finish() has a small frame.
[[gnu::cold, gnu::noinline]] Error ManyCall::error_of_failed() const noexcept {
  OperationRecord operation;
  operation.request.opcode = opcode_;
  operation.offset_bytes = failed_->offset_bytes;
  operation.length_bytes = failed_->length_bytes;
  operation.outcome = failed_->outcome;
  return of_pair(failed_->region->error_of(operation), failed_->region->info().name,
                 failed_->index);
}

/// Whether the deadline has passed, so that no more pairs begin.
bool ManyCall::expired() noexcept {
  expired_ = expired_ || clock_now() >= deadline_;
  return expired_;
}

void ManyCall::fail(const RegionGrant& region, std::size_t index,
                    const OperationRecord& operation) noexcept {
  const Outcome& outcome = operation.outcome;
  if (!each_.empty())
    each_[index] = {
        .ok = false, .code = outcome.code, .reason = outcome.reason, .status = outcome.status};
  if (failed_ && failed_->index <= index) return;
  failed_ = Failed{.region = &region,
                   .index = index,
                   .offset_bytes = operation.offset_bytes,
                   .length_bytes = operation.length_bytes,
                   .outcome = outcome};
}

/// Ends pairs that have not begun, and have had no effect.
template <typename Pair>
void ManyCall::expire_all(const RegionGrant& region, std::span<Pair> pairs) noexcept {
  EndTally tally{session_.metrics()};
  for (Pair& pair : pairs) {
    OperationRecord operation;
    fill_pair(operation, pair);
    operation.outcome = kPairExpired;
    tally.add(operation);
    fail(region, next_index_++, operation);
  }
}

// Copies over mapped memory:

template <typename Pair>
void ManyCall::add_copies(const RegionGrant& region, std::span<Pair> pairs) noexcept {
  while (!pairs.empty()) {
    if (expired_) [[unlikely]]
      return expire_all(region, pairs);
    std::size_t count = copy_round(region, pairs);
    if (count == 0) [[unlikely]] {
      run_single(region, pairs.front(), next_index_++);
      count = 1;
    }
    pairs = pairs.subspan(count);
  }
}

/// Checks pairs and prefetches their bytes until the round is full or a pair does not fit into a
/// round; then copies them. Returns their number. 0: the first pair does not fit, or the session is
/// interrupted.
template <typename Pair>
std::size_t ManyCall::copy_round(const RegionGrant& region, std::span<Pair> pairs) noexcept {
  constexpr Opcode kOpcode = kOpcodeOf<Pair>;
  std::array<std::byte*, kMaxCopies> remotes;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  const std::size_t room = std::min(pairs.size(), kMaxCopies);
  RegionGrant::MappedBytes mapped = region.mapped_bytes(kOpcode);
  mapped.bytes_max = std::min<std::uint64_t>(mapped.bytes_max, kMaxCopyBytes);
  std::size_t round_bytes = 0;
  std::size_t count = 0;
  for (; count != room && round_bytes < kCopyRoundBytes; ++count) {
    const PairBytes bytes = bytes_of(pairs[count]);
    if (!mapped.admits(bytes.offset_bytes, bytes.local, bytes.length_bytes)) [[unlikely]]
      break;
    std::byte* const remote = mapped.address + bytes.offset_bytes;
    fetch_pair(kOpcode, remote, bytes.length_bytes);
    remotes[count] = remote;
    round_bytes += bytes.length_bytes;
  }
  if (count == 0) [[unlikely]]
    return 0;
  const MappedAccess access{region.serial()};
  if (region.revoked() != Reason::kNone || !lane_.may_copy()) [[unlikely]]
    return 0;
  for (std::size_t i = 0; i < count; ++i) {
    const PairBytes bytes = bytes_of(pairs[i]);
    if constexpr (kOpcode == Opcode::kRead)
      copy_pair(bytes.local, remotes[i], bytes.length_bytes);
    else
      copy_pair(remotes[i], bytes.local, bytes.length_bytes);
  }
  next_index_ += count;
  copied_count_ += count;
  copied_bytes_ += round_bytes;
  if (--rounds_until_clock_ == 0) {
    rounds_until_clock_ = kRoundsPerLook;
    (void)expired();
  }
  return count;
}

/// Carries out a pair that does not fit into copy_round(): a long one, one that mapped_bytes() does
/// not admit, or any pair while the session is interrupted, for which the driver waits. Also for
/// run_singles().
template <typename Pair>
void ManyCall::run_single(const RegionGrant& region, Pair& pair, std::size_t index) noexcept {
  OperationRecord operation;
  fill_pair(operation, pair);
  operation.memory = memory_of(pair);
  if (expired()) {
    operation.outcome = kPairExpired;
    EndTally{session_.metrics()}.add(operation);
  } else {
    region.run_counted(
        operation, std::max<Clock::duration>(deadline_ - clock_now(), std::chrono::nanoseconds{1}));
  }
  if (!operation.outcome.ok) return fail(region, index, operation);
  if constexpr (!transport::is_transfer(kOpcodeOf<Pair>)) *before_of(pair) = operation.old_value;
}

/// Carries out atomics that must not use the lane of this call: a session with rails has another
/// lane for them, or none.
template <typename Pair>
void ManyCall::run_singles(const RegionGrant& region, std::span<Pair> pairs) noexcept {
  submit();
  for (Pair& pair : pairs) run_single(region, pair, next_index_++);
}

// Records on a lane:

template <typename Pair>
void ManyCall::add_records(const RegionGrant& region, std::span<Pair> pairs) noexcept {
  constexpr bool kTransfer = transport::is_transfer(kOpcodeOf<Pair>);
  if constexpr (!kTransfer)
    if (!region.atomics_go_by(lane_)) [[unlikely]]
      return run_singles(region, pairs);
  if (batch_->chain_all()) place_ = batch_->first_free();
  if (lane_.maps_memory()) submit();  // atomics: see submit()
  while (true) {
    if constexpr (kTransfer) pairs = pairs.subspan(fill_quickly(region, pairs));
    if (pairs.empty()) return;
    Pair& pair = pairs.front();
    if constexpr (kTransfer)
      if (LocalMemory* const memory = memory_of(pair); memory != last_memory_) {
        note_use(memory, region.needs_keys());
        continue;
      }
    if (place_ == nullptr || expired_) {
      if (!make_room()) return expire_all(region, pairs);
      continue;
    }
    fill_closely(region, pair);
    pairs = pairs.subspan(1);
  }
}

/// Fills records with pairs while they pass the quick check, records are free, and the local memory
/// is that of the pair before. Returns their number. Each pair goes through this loop, so it keeps
/// the members that it needs in registers.
template <typename Pair>
std::size_t ManyCall::fill_quickly(const RegionGrant& region, std::span<Pair> pairs) noexcept {
  if (expired_) return 0;
  const Clock::time_point submitted = chunk_began_;
  const Deadline deadline = deadline_;
  LocalMemory* const memory = last_memory_;
  const std::size_t first_index = next_index_;
  OperationRecord* const first = place_;
  OperationRecord* last = nullptr;
  OperationRecord* at = first;
  std::size_t count = 0;
  for (; count != pairs.size() && at != nullptr; ++count) {
    Pair& pair = pairs[count];
    ManyRecord& record = *ManyBatch::record_of(at);
    if (memory_of(pair) != memory) break;
    fill_pair(record, pair);
    record.memory = memory;
    if (!region.admits(record)) break;
    record.submitted = submitted;
    record.deadline = deadline;
    record.grant = &region;
    record.index = first_index + count;
    // All filled records have the same opcode and time of submission: see may_follow().
    record.follows = true;
    last = at;
    at = at->next;
  }
  if (count == 0) return 0;
  first->follows = filled_count_ != 0 && last_filled_->whole;
  last_filled_ = last;
  place_ = at;
  filled_count_ += count;
  next_index_ += count;
  return count;
}

/// Fills the free record `place_` with a pair that fails the quick check, or ends the pair.
template <typename Pair>
void ManyCall::fill_closely(const RegionGrant& region, Pair& pair) noexcept {
  constexpr bool kTransfer = transport::is_transfer(kOpcodeOf<Pair>);
  ManyRecord& record = *ManyBatch::record_of(place_);
  const std::size_t index = next_index_++;
  fill_pair(record, pair);
  record.memory = memory_of(pair);
  record.submitted = chunk_began_;
  record.deadline = deadline_;
  filled_closely_ = true;
  // If the pair is refused, the next pair uses its record.
  if (!region.check_on<kOpcodeOf<Pair>>(record, lane_)) return fail(region, index, record);
  record.grant = &region;
  record.index = index;
  if constexpr (!kTransfer) record.before = before_of(pair);
  record.follows = kTransfer && filled_count_ != 0 && record.whole && last_filled_->whole;
  last_filled_ = &record;
  place_ = record.next;
  ++filled_count_;
}

/// Submits the filled records, and waits until records are free. False: the deadline has passed.
bool ManyCall::make_room() noexcept {
  if (expired_) return false;
  submit();
  if (in_flight_ > kRefillBelow) wait(in_flight_ - kRefillBelow);
  chunk_began_ = clock_now();
  expired_ = chunk_began_ >= deadline_;
  return !expired_;
}

/// Submits the filled records to the lane: one chain, one doorbell.
void ManyCall::submit() noexcept {
  if (filled_count_ == 0) return;
  OperationList filled{.first = batch_->first_free(),
                       .last = last_filled_,
                       .count = std::exchange(filled_count_, 0)};
  batch_->take_before(place_);
  last_filled_->next = nullptr;
  // This thread carries out atomics on mapped memory; all of them are of one region: see
  // add_records().
  std::optional<MappedAccess> access;
  if (lane_.maps_memory()) access.emplace(ManyBatch::record_of(filled.first)->grant->serial());
  if (std::exchange(filled_closely_, false)) [[unlikely]]
    filled = admit_again(filled);
  if (filled.empty()) return;
  in_flight_ += filled.count;
  batch_->order().arrange(filled);
  lane_.submit(filled);
}

/// Checks again, for a list whose first checks may have taken time, as registrations do when they
/// pin pages. A revocation does not wait for that, and the deadline may have passed. Returns the
/// operations that may be sent.
OperationList ManyCall::admit_again(OperationList filled) noexcept {
  for (OperationRecord* at = filled.first; at != nullptr; at = at->next)
    if (!at->whole) (void)lane_.acquire_lease(*at, LaneDriver::Lease::kNew);
  bool any = expired();
  for (OperationRecord* at = filled.first; at != nullptr && !any; at = at->next)
    any = ManyBatch::record_of(at)->grant->revoked() != Reason::kNone;
  if (!any) [[likely]]
    return filled;
  OperationList refused;
  filled.extract(
      [&](OperationRecord& operation) {
        const Reason why = ManyBatch::record_of(&operation)->grant->revoked();
        return expired_ || why != Reason::kNone;
      },
      [&](OperationRecord& operation) { refused.append(operation); });
  while (!refused.empty()) {
    OperationRecord& operation = refused.take_first();
    const Reason why = ManyBatch::record_of(&operation)->grant->revoked();
    refuse(operation,
           why != Reason::kNone ? Outcome::failure(Code::kAccessRefused, why) : kPairExpired);
  }
  place_ = batch_->first_free();
  return filled;
}

/// Ends an operation that was never submitted; its record is free then.
void ManyCall::refuse(OperationRecord& operation, const Outcome& outcome) noexcept {
  if (!operation.whole) lane_.release_lease(operation);
  operation.outcome = outcome;
  EndTally{session_.metrics()}.add(operation);
  const ManyRecord& record = *ManyBatch::record_of(&operation);
  fail(static_cast<const RegionGrant&>(*record.grant), record.index, operation);
  batch_->give_back(operation, operation);
}

/// Waits until `at_least` operations in flight have ended, at least one, and takes all that have
/// ended. No filled records are left then.
void ManyCall::wait(std::size_t at_least) noexcept {
  if (batch_->sink().ready() < at_least) {
    const auto earliest = [this] { return deadline_; };
    lane_.wait(batch_->sink(), at_least, DeadlineSource{earliest});
  }
  collect();
  place_ = batch_->first_free();
}

void ManyCall::collect() noexcept {
  if (run_region_ != nullptr) return collect_runs();
  CompletionSink& sink = batch_->sink();
  const bool atomic = is_atomic(opcode_);
  for (std::size_t left = sink.ready(); left != 0;) {
    const CompletionSink::Run run = sink.take_run();
    OperationRecord* last = run.first;
    if (run.count > 1 && !atomic) {
      // Transfers that a lane has completed together have succeeded.
      for (std::size_t i = 1; i < run.count; ++i) last = last->next;
    } else {
      OperationRecord* at = run.first;
      for (std::size_t i = 0; i < run.count; ++i, at = at->next) {
        last = at;
        const ManyRecord& record = *ManyBatch::record_of(at);
        if (!at->outcome.ok) [[unlikely]]
          fail(static_cast<const RegionGrant&>(*record.grant), record.index, record);
        else if (atomic)
          *record.before = at->old_value;
      }
    }
    batch_->give_back(*run.first, *last);
    REMORA_ASSERT_HOT(run.count <= in_flight_, "a pair in flight ends once");
    in_flight_ -= run.count;
    left -= run.count;
  }
}

/// Counts the call as a use of `memory` until end_uses(), if the memory has handles.
void ManyCall::note_use(LocalMemory* memory, bool needs_keys) noexcept {
  last_memory_ = memory;
  if (memory == nullptr || !needs_keys || !memory->has_handles()) return;
  if (use_count_ != 0) {
    const auto end = uses_.begin() + static_cast<std::ptrdiff_t>(use_count_);
    if (std::find(uses_.begin(), end, memory) != end) return;
    if (use_count_ == kMaxUses) {
      submit();
      if (in_flight_ != 0) wait(in_flight_);
      end_uses();
    }
  }
  memory->begin_use();
  uses_[use_count_++] = memory;
}

void ManyCall::end_uses() noexcept {
  for (LocalMemory* const memory : std::span{uses_}.first(use_count_)) memory->end_use();
  use_count_ = 0;
}

template void ManyCall::add<const ReadPair>(const RegionGrant&, std::span<const ReadPair>) noexcept;
template void ManyCall::add<const WritePair>(const RegionGrant&,
                                             std::span<const WritePair>) noexcept;
template void ManyCall::add<FetchAddPair>(const RegionGrant&, std::span<FetchAddPair>) noexcept;
template void ManyCall::add<CompareSwapPair>(const RegionGrant&,
                                             std::span<CompareSwapPair>) noexcept;

}  // namespace remora::detail
