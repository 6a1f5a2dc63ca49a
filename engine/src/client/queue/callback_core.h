#pragma once

/// The state of a CallbackQueue: a table of operations with their callables, and the two ways by
/// which finished operations reach the poller: a sink, to which the holder of the lane pushes, and
/// a stack, to which any thread pushes operations that ended on submission.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include <remora/engine/callback_queue.h>
#include <remora/engine/many.h>

#include "base/index_stack.h"
#include "client/datapath/memory_releaser.h"
#include "client/datapath/operation_list.h"
#include "client/datapath/operation_record.h"
#include "client/queue/queue_core.h"
#include "client/region/region_grant.h"
#include "client/services/polled_queue.h"

namespace remora::detail {

class Poller;

/// A place of the table: an operation, from its submission until its callback has returned.
struct CallbackEntry : QueueEntry {
  static constexpr Deadline::rep kNever = std::numeric_limits<Deadline::rep>::max();
  /// The deadline while the operation is in flight, when the record itself belongs to the lane.
  std::atomic<Deadline::rep> due{kNever};
  const CallbackType* type = nullptr;
  alignas(std::max_align_t) std::array<std::byte, kMaxCallbackBytes> callable{};
};

/// The state of a CallbackQueue, and the base of that of an AsyncQueue. Its owner and its poller
/// have references: see PolledQueue. Thread-safe, unless a function says otherwise.
class CallbackCore : public OperationOwner, public PolledQueue {
 public:
  /// Errors: as Region::callback_queue.
  static Result<CallbackCore*> create(std::shared_ptr<RegionGrant> region,
                                      const QueueOptions& options);
  /// The caller owns the new queue; create() also adds it to the poller.
  CallbackCore(std::shared_ptr<RegionGrant> region, Poller& poller, const QueueOptions& options);
  ~CallbackCore() override = default;
  CallbackCore(const CallbackCore&) = delete;
  CallbackCore& operator=(const CallbackCore&) = delete;

  /// Any thread calls these:

  /// The operation's deadline is at most `until`.
  Status take_transfer(const QueueCore::Transfer& transfer, Slot* slot, GivenCallback given,
                       std::uint64_t tag, Deadline until = Deadline::max()) noexcept;
  Status take(const transport::WorkRequest& request, ByteOffset offset, std::uint64_t length_bytes,
              GivenCallback given, std::uint64_t tag, Deadline until = Deadline::max()) noexcept;
  /// See CallbackQueue::read_many(). In callback_queue_group.cc.
  template <typename Pair>
  Status take_group(std::span<Pair> pairs, std::span<ManyOutcome> each, GivenCallback given,
                    std::uint64_t tag, Deadline until = Deadline::max()) noexcept;
  [[nodiscard]] Error error_of(const OperationRecord& operation) const noexcept override {
    return error_in_group(region_->error_of(operation), *region_,
                          static_cast<const QueueEntry&>(operation));
  }
  [[nodiscard]] std::size_t depth() const noexcept { return depth_; }
  [[nodiscard]] std::size_t size() const noexcept {
    return static_cast<std::size_t>(in_flight_.load(std::memory_order_acquire) & kCount);
  }
  [[nodiscard]] ByteOffset offset_of(Block block) const noexcept {
    return detail::offset_of(block, region_->info());
  }
  /// Refuses new operations, and waits for those in flight; see ~CallbackQueue(). The owner calls
  /// it once.
  void close() noexcept;

  /// The poller calls these:
  bool serve() noexcept override;
  Deadline arm(int epoll) noexcept override;
  [[nodiscard]] bool ready() const noexcept override;
  [[nodiscard]] bool over() const noexcept final {
    return in_flight_.load(std::memory_order_acquire) == kClosing;
  }
  void leave(int epoll) noexcept override;

 protected:
  /// A poller for a queue with these options. Errors: as Region::callback_queue.
  static Result<Poller*> poller_for(const RegionGrant& region, const QueueOptions& options);
  /// Refuses new operations, and does not wait. The owner calls it once.
  void abandon() noexcept;
  [[nodiscard]] Poller& poller() const noexcept { return poller_; }
  [[nodiscard]] std::chrono::nanoseconds deadline() const noexcept { return deadline_; }
  [[nodiscard]] const std::shared_ptr<RegionGrant>& region() const noexcept { return region_; }
  /// Between hold() and let_go(), close() waits, so that the queue lives. False: the poller has
  /// left the queue, and hold() has no effect. Any thread.
  [[nodiscard]] bool hold() noexcept;
  void let_go() noexcept;

 private:
  /// The parts of in_flight_: the number of operations, the number of holders, and whether the
  /// queue refuses new operations. They are in one word, so that no operation is taken after the
  /// poller's last check.
  static constexpr std::uint64_t kCount = (std::uint64_t{1} << 32U) - 1;
  static constexpr std::uint64_t kHold = std::uint64_t{1} << 32U;
  static constexpr std::uint64_t kClosing = std::uint64_t{1} << 63U;
  CallbackEntry* acquire(Status& why) noexcept;
  void give_back(CallbackEntry& entry) noexcept;
  bool acquire_lease(CallbackEntry& entry) noexcept;
  Status hand_over(CallbackEntry& entry, bool sound, Slot* slot, GivenCallback given,
                   std::uint64_t tag, Deadline until) noexcept;
  void carry_out(CallbackEntry& entry) noexcept;
  void push_done(CallbackEntry& entry) noexcept;
  Status acquire_places(std::size_t count) noexcept;
  void refuse_all(OperationList& sound, OperationList& refused, const Outcome& outcome) noexcept;
  void hand_over_group(OperationList sound, OperationList refused) noexcept;
  void end_of_pair(CallbackEntry& entry) noexcept;
  bool serve_done() noexcept;
  void end(CallbackEntry& entry) noexcept;
  void call(CallbackEntry& entry) noexcept;
  void log_exception(const char* what) noexcept;
  void end_overdue() noexcept;
  [[nodiscard]] Deadline earliest_deadline() noexcept;
  void lower_earliest(Deadline::rep due) noexcept;
  [[nodiscard]] LaneDriver& lane() const noexcept { return lane_; }

  std::shared_ptr<RegionGrant> region_;
  LaneDriver& lane_;
  Poller& poller_;
  std::chrono::nanoseconds deadline_;
  std::size_t depth_;
  bool immediate_;  ///< operations end when they are submitted
  /// The depth and one more, for the operation whose callback runs.
  std::vector<CallbackEntry> table_;
  MemoryReleaser::Table memory_named_;  ///< names the memory of the places of table_
  IndexStack free_;
  std::vector<CompletionSink::Run> ring_;
  CompletionSink sink_;                                  ///< emptied by the poller
  alignas(64) std::atomic<std::uint64_t> in_flight_{0};  ///< until the callback begins; kClosing
  alignas(64) std::atomic<OperationRecord*> done_{nullptr};  ///< chained by next, the latest first

  /// No operation in flight has an earlier deadline.
  std::atomic<Deadline::rep> earliest_{0};

  /// Used by the poller only:
  std::uint64_t exceptions_ = 0;
};

}  // namespace remora::detail
