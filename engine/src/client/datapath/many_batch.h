#pragma once

/// The records of calls with many pairs (remora/engine/many.h) on a lane that takes requests. A
/// batch belongs to one call at a time. A session keeps a few batches for its next calls, so that
/// these calls allocate nothing.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <remora/engine/many.h>

#include "client/datapath/batch_order.h"
#include "client/datapath/lane_driver.h"
#include "client/datapath/operation_record.h"
#include "client/datapath/revocable_grant.h"

namespace remora::detail {

/// The record of a pair in flight.
struct ManyRecord : OperationRecord {
  const RevocableGrant* grant;
  std::uint64_t* before;  ///< destination of an atomic's old value
  std::size_t index;      ///< the index of the pair in its call
};

/// Records, chained by `next`: the free ones come first. Or, until chain_all(), an array of records
/// for uniform runs. The call that uses it owns it, else ManyBatches. One thread at a time.
class ManyBatch {
 public:
  /// For calls on `lane`, or on a lane with the same limits. Throws std::bad_alloc.
  explicit ManyBatch(const LaneDriver& lane);
  ManyBatch(const ManyBatch&) = delete;
  ManyBatch& operator=(const ManyBatch&) = delete;

  [[nodiscard]] static ManyRecord* record_of(OperationRecord* operation) noexcept {
    return static_cast<ManyRecord*>(operation);
  }
  /// The first free record; null: all are in flight.
  [[nodiscard]] ManyRecord* first_free() const noexcept { return free_; }
  /// The free records before `first`, in their chain, are in flight from here on.
  void take_before(OperationRecord* first) noexcept { free_ = record_of(first); }
  /// The records from `first` to `last`, chained by next, are free again.
  void give_back(OperationRecord& first, OperationRecord& last) noexcept {
    last.next = free_;
    free_ = record_of(&first);
  }
  /// All records, while none is in flight. The caller may link them anew: chain_all() restores the
  /// chain of free records.
  [[nodiscard]] std::span<ManyRecord, kManyInFlight> unchained() noexcept {
    chained_ = false;
    // The vector has this length; to ask it for its length costs a division.
    return std::span<ManyRecord, kManyInFlight>{records_.data(), kManyInFlight};
  }
  /// The requests of the records, as a lane takes them. The order is that of unchained().
  [[nodiscard]] transport::Chain requests() const noexcept { return requests_; }
  /// Chains all records as free ones, while none is in flight. False: the chain is as first_free()
  /// says, since unchained() was not called.
  bool chain_all() noexcept;
  /// The most pairs of a uniform run: as many as there are records and the lane has room for.
  [[nodiscard]] std::size_t max_run() const noexcept { return max_run_; }
  [[nodiscard]] CompletionSink& sink() noexcept { return sink_; }
  [[nodiscard]] BatchOrder& order() noexcept { return order_; }

 private:
  std::vector<ManyRecord> records_;
  std::vector<const transport::WorkRequest*> requests_;
  ManyRecord* free_ = nullptr;
  bool chained_ = false;
  std::size_t max_run_;
  std::vector<CompletionSink::Run> ring_;
  CompletionSink sink_;
  BatchOrder order_;
};

}  // namespace remora::detail
