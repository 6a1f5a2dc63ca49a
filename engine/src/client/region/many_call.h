#pragma once

/// One synchronous call with many pairs: see remora/engine/many.h. Over mapped memory the calling
/// thread copies. On a lane that takes requests, the transfers of a call go as uniform runs as long
/// as they have one region, one local memory and no neighbours. The other pairs each have a record
/// of a ManyBatch while they are in flight. A pair that fails the quick check is handled like a
/// single operation.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <remora/assert.h>
#include <remora/engine/many.h>
#include <remora/result.h>

#include "base/clock.h"
#include "client/datapath/client_metrics.h"
#include "client/datapath/lane_driver.h"
#include "client/datapath/local_memory.h"
#include "client/datapath/many_batch.h"
#include "client/datapath/many_pairs.h"
#include "client/datapath/operation_list.h"
#include "client/datapath/operation_record.h"
#include "client/region/region_grant.h"
#include "client/services/engine_services.h"
#include "client/session/session_core.h"
#include "transport/work_request.h"

namespace remora::detail {

/// By one thread: add_only(), or add() for the pairs of each region in turn; then finish().
/// exception: each round of pairs touches most of the members (unit_engine_cost counts the
/// instructions).
class ManyCall {
 public:
  /// `options` are checked. If the call is ready(), its outcomes are set to ok; a failed pair
  /// changes its outcome.
  ManyCall(SessionCore& session, transport::Opcode opcode, const ManyOptions& options) noexcept;
  ~ManyCall();
  ManyCall(const ManyCall&) = delete;
  ManyCall& operator=(const ManyCall&) = delete;

  /// False: out of memory for the records; the call must not be used.
  [[nodiscard]] bool ready() const noexcept { return mapped_ || batch_ != nullptr; }
  /// Begins the pairs of one region of the session. Their indices follow those of the add() before.
  /// Borrows `pairs` and the region until finish() has returned. May block.
  template <typename Pair>
  void add(const RegionGrant& region, std::span<Pair> pairs) noexcept;
  /// As add(), for a call whose pairs are all of one region.
  template <typename Pair>
  void add_only(const RegionGrant& region, std::span<Pair> pairs) noexcept;
  /// Blocks until all pairs have ended.
  Status finish() noexcept;

 private:
  /// The failed pair with the lowest index.
  struct Failed {
    const RegionGrant* region;
    std::size_t index;
    std::uint64_t offset_bytes;
    std::uint64_t length_bytes;
    Outcome outcome;
  };
  /// A uniform run: some of its operations are in flight, or it has ended.
  struct Run {
    ManyRecord* records = nullptr;  ///< null: it has not begun
    std::size_t in_flight = 0;
    std::size_t first_index = 0;  ///< the index of the pair of the first record
  };
  /// Number of memories with handles that the pairs in flight may use.
  static constexpr std::size_t kMaxUses = 16;
  /// Number of rounds of copies between two checks of the deadline.
  static constexpr std::size_t kRoundsPerLook = 16;

  [[nodiscard]] static std::chrono::nanoseconds time_for_pairs(
      const ManyOptions& options, const SessionCore& session) noexcept {
    return options.deadline > options.deadline.zero()
               ? options.deadline
               : session.engine().options().operation_deadline;
  }
  [[nodiscard]] bool expired() noexcept;
  [[nodiscard]] Error error_of_failed() const noexcept;
  void fail(const RegionGrant& region, std::size_t index,
            const OperationRecord& operation) noexcept;
  template <typename Pair>
  void expire_all(const RegionGrant& region, std::span<Pair> pairs) noexcept;

  // For mapped memory:
  template <typename Pair>
  void add_copies(const RegionGrant& region, std::span<Pair> pairs) noexcept;
  template <typename Pair>
  void run_single(const RegionGrant& region, Pair& pair, std::size_t index) noexcept;
  template <typename Pair>
  [[nodiscard]] std::size_t copy_round(const RegionGrant& region, std::span<Pair> pairs) noexcept;

  // For lanes that take requests (many_call_runs.cc):
  template <typename Pair>
  [[nodiscard]] std::size_t add_runs(const RegionGrant& region, std::span<Pair> pairs) noexcept;
  template <typename Pair>
  [[nodiscard]] std::size_t begin_run(Run& run, const RegionGrant& region, std::span<Pair> pairs,
                                      transport::Chain requests) noexcept;
  template <bool kKnown, typename Pair>
  [[nodiscard, gnu::noinline]] std::uint64_t fill_run(const RegionGrant& region,
                                                      std::span<Pair> pairs,
                                                      ManyRecord* records) noexcept;
  [[nodiscard]] std::size_t post_run(Run& run, transport::Chain requests,
                                     std::uint64_t bytes) noexcept;
  void collect_runs() noexcept;
  void end_runs() noexcept;

  // For lanes that take requests, and for atomics:
  template <typename Pair>
  void add_records(const RegionGrant& region, std::span<Pair> pairs) noexcept;
  template <typename Pair>
  [[nodiscard]] std::size_t fill_quickly(const RegionGrant& region, std::span<Pair> pairs) noexcept;
  template <typename Pair>
  void fill_closely(const RegionGrant& region, Pair& pair) noexcept;
  template <typename Pair>
  void run_singles(const RegionGrant& region, std::span<Pair> pairs) noexcept;
  [[nodiscard]] bool make_room() noexcept;
  void submit() noexcept;
  [[nodiscard]] OperationList admit_again(OperationList filled) noexcept;
  void refuse(OperationRecord& operation, const Outcome& outcome) noexcept;
  void wait(std::size_t at_least) noexcept;
  void collect() noexcept;
  void note_use(LocalMemory* memory, bool needs_keys) noexcept;
  void end_uses() noexcept;

  SessionCore& session_;
  LaneDriver& lane_;
  const transport::Opcode opcode_;
  const Clock::time_point began_;
  const Deadline deadline_;
  const std::span<ManyOutcome> each_;
  const bool mapped_;     ///< the pairs are copied by the calling thread
  bool expired_ = false;  ///< the deadline has passed, so no more pairs begin
  std::size_t next_index_ = 0;
  std::optional<Failed> failed_;

  std::size_t rounds_until_clock_;
  std::uint64_t copied_count_ = 0;
  std::uint64_t copied_bytes_ = 0;

  std::unique_ptr<ManyBatch> batch_;
  const RegionGrant* run_region_ = nullptr;  ///< null: no uniform runs are in flight
  std::array<Run, 2> runs_{};
  /// The first of the filled records that are not submitted is batch_->first_free(). `place_`, the
  /// record behind them, is free.
  OperationRecord* place_ = nullptr;
  OperationRecord* last_filled_ = nullptr;
  std::size_t filled_count_ = 0;
  /// A filled record needed more than the quick check, which takes time.
  bool filled_closely_ = false;
  std::size_t in_flight_ = 0;
  Clock::time_point chunk_began_;
  LocalMemory* last_memory_ = nullptr;  ///< the use of this memory is counted, or need not be
  std::size_t use_count_ = 0;
  std::array<LocalMemory*, kMaxUses> uses_;
};

extern template std::size_t ManyCall::add_runs<const ReadPair>(const RegionGrant&,
                                                               std::span<const ReadPair>) noexcept;
extern template std::size_t ManyCall::add_runs<const WritePair>(
    const RegionGrant&, std::span<const WritePair>) noexcept;
extern template void ManyCall::add<const ReadPair>(const RegionGrant&,
                                                   std::span<const ReadPair>) noexcept;
extern template void ManyCall::add<const WritePair>(const RegionGrant&,
                                                    std::span<const WritePair>) noexcept;
extern template void ManyCall::add<FetchAddPair>(const RegionGrant&,
                                                 std::span<FetchAddPair>) noexcept;
extern template void ManyCall::add<CompareSwapPair>(const RegionGrant&,
                                                    std::span<CompareSwapPair>) noexcept;

// Inline, since the pairs of a call are few.

// NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): uses_ is filled as far as it counts
[[gnu::always_inline]] inline ManyCall::ManyCall(SessionCore& session, transport::Opcode opcode,
                                                 const ManyOptions& options) noexcept
    : session_{session},
      lane_{session.lane_of_thread(SessionLanes::use_of(opcode))},
      opcode_{opcode},
      began_{clock_now()},
      deadline_{deadline_after(began_, time_for_pairs(options, session))},
      each_{options.each},
      mapped_{lane_.maps_memory() && transport::is_transfer(opcode)},
      rounds_until_clock_{kRoundsPerLook},
      chunk_began_{began_} {
  if (!mapped_) {
    batch_ = session.many_batches().take(lane_);
    if (batch_ == nullptr) return;  // the call is refused, and writes no outcomes
    place_ = batch_->first_free();
  }
  std::fill(each_.begin(), each_.end(), ManyOutcome{});
}

[[gnu::always_inline]] inline ManyCall::~ManyCall() {
  REMORA_ASSERT_HOT(in_flight_ == 0, "a call returns when all its pairs have ended");
  if (use_count_ != 0) end_uses();
  if (batch_ != nullptr) session_.many_batches().give_back(std::move(batch_));
}

[[gnu::always_inline]] inline Status ManyCall::finish() noexcept {
  if (mapped_) {
    if (copied_count_ != 0)
      session_.metrics().ended(session_.metrics().recorder(), opcode_, latency_now() - began_,
                               copied_count_, copied_bytes_);
  } else {
    if (filled_count_ != 0) submit();
    if (in_flight_ != 0) wait(in_flight_);
  }
  if (!failed_) [[likely]]
    return {};
  return error_of_failed();
}

template <typename Pair>
void ManyCall::add_only(const RegionGrant& region, std::span<Pair> pairs) noexcept {
  if constexpr (transport::is_transfer(kOpcodeOf<Pair>))
    if (!mapped_) {
      pairs = pairs.subspan(add_runs(region, pairs));
      if (pairs.empty()) [[likely]]
        return;
      end_runs();
    }
  add(region, pairs);
}

}  // namespace remora::detail
