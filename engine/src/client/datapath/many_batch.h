#pragma once

/// The records of calls with many pairs (remora/engine/many.h) on a lane that takes requests. A
/// batch belongs to one call at a time; a session keeps a few for its next calls, so that these
/// allocate nothing.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <remora/engine/many.h>

#include "client/datapath/batch_order.h"
#include "client/datapath/lane_driver.h"
#include "client/datapath/operation.h"
#include "client/datapath/revocable_grant.h"

namespace remora::detail {

/// A pair in flight.
struct ManyRecord : OperationRecord {
  const RevocableGrant* grant;
  std::uint64_t* before;  ///< of an atomic: where its old value goes
  std::size_t index;      ///< of the pair, in its call
};

/// Records, of which the first ones in the chain `place` to null are free. One thread at a time.
class ManyBatch {
 public:
  /// For calls on `lane`, or on a lane like it. Throws std::bad_alloc.
  explicit ManyBatch(const LaneDriver& lane);
  ManyBatch(const ManyBatch&) = delete;
  ManyBatch& operator=(const ManyBatch&) = delete;

  [[nodiscard]] static ManyRecord* record_of(OperationRecord* operation) noexcept {
    return static_cast<ManyRecord*>(operation);
  }
  /// The first free record; null: all are in flight.
  [[nodiscard]] ManyRecord* first_free() const noexcept { return free_; }
  /// The records before `first`, in the chain of free ones, are in flight from here on.
  void take_before(OperationRecord* first) noexcept { free_ = record_of(first); }
  /// The records from `first` to `last`, chained by next, are free again.
  void give_back(OperationRecord& first, OperationRecord& last) noexcept {
    last.next = free_;
    free_ = record_of(&first);
  }
  [[nodiscard]] CompletionSink& sink() noexcept { return sink_; }
  [[nodiscard]] BatchOrder& order() noexcept { return order_; }

 private:
  std::vector<ManyRecord> records_;
  ManyRecord* free_;
  std::vector<CompletionSink::Run> ring_;
  CompletionSink sink_;
  BatchOrder order_;
};

/// The batches of a session that no call uses. Thread-safe and lock-free.
class ManyBatches {
 public:
  ManyBatches() = default;
  ~ManyBatches();
  ManyBatches(const ManyBatches&) = delete;
  ManyBatches& operator=(const ManyBatches&) = delete;

  /// A batch for one call. Null: there is no memory for one.
  [[nodiscard]] std::unique_ptr<ManyBatch> take(const LaneDriver& lane) noexcept;
  /// Keeps a batch, all of whose records are free, or destroys it where enough are kept.
  void give_back(std::unique_ptr<ManyBatch> batch) noexcept;

 private:
  static constexpr std::size_t kMaxKept = 4;
  std::array<std::atomic<ManyBatch*>, kMaxKept> kept_{};
};

}  // namespace remora::detail
