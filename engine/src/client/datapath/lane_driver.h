#pragma once

/// Moves operations over one data path of a session. There are two kinds: QueuedLaneDriver, for
/// transports that take work requests and complete them later (rdma, tcp), and MappedMemoryDriver,
/// for remote memory that is mapped, where submit() itself carries the operations out (shm).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include <remora/result.h>

#include "base/clock.h"
#include "client/datapath/client_metrics.h"
#include "client/datapath/operation.h"
#include "transport/lane.h"

namespace remora::detail {

class RevocableGrant;

/// The earliest deadline of the operations that a caller waits for. The driver asks again whenever
/// the last answer has passed. Borrows the callable.
class DeadlineSource {
 public:
  template <typename Ask>
  explicit DeadlineSource(const Ask& ask) noexcept
      : callable_{&ask}, ask_{[](const void* callable) noexcept {
          return (*static_cast<const Ask*>(callable))();
        }} {}
  [[nodiscard]] Deadline operator()() const noexcept { return ask_(callable_); }

 private:
  const void* callable_;
  Deadline (*ask_)(const void*) noexcept;
};

/// The outcome of an operation that finds its session interrupted or ended.
[[nodiscard]] inline Outcome session_gone(Reason reason) noexcept {
  return Outcome::failure(reason == Reason::kNewMemory ? Code::kStaleRegion : Code::kConnectionLost,
                          reason);
}

/// Thread-safe, unless said otherwise.
class LaneDriver {
 public:
  /// Called once, without a lock, by the thread that noticed that the lane is broken.
  using BrokenHandler = std::function<void()>;
  /// The reason why an operation was refused, or must be; kNone: not known.
  using RefusalHandler = std::function<Reason(const OperationRecord&)>;

  LaneDriver() = default;
  virtual ~LaneDriver() = default;
  LaneDriver(const LaneDriver&) = delete;
  LaneDriver& operator=(const LaneDriver&) = delete;

  /// Whether acquire_lease() may make a registration, which blocks while pages are pinned.
  enum class Lease : std::uint8_t { kOld, kNew };
  /// Finds a registration for the memory of a checked operation that is not whole, if that is worth
  /// it. The operation's owner calls it before submit(), once the deadline is known. The driver
  /// releases the lease when the operation ends; for an operation that is not submitted, the owner
  /// calls release_lease(). Takes half of the operation's time, or little more. True: it may have
  /// taken time.
  virtual bool acquire_lease(OperationRecord& operation, Lease which) noexcept {
    (void)operation, (void)which;
    return false;
  }
  virtual void release_lease(OperationRecord& operation) noexcept { (void)operation; }

  /// Takes checked operations; each ends in its sink. Never allocates. Waits for the server only
  /// where mapped memory has notifications to deliver.
  virtual void submit(OperationList operations) noexcept = 0;

  /// Blocks until `sink` has `at_least` operations ready; at least so many must have been submitted
  /// to it. Also for 0 it moves the operations in flight, and does not block. By the sink's owner.
  virtual void wait(CompletionSink& sink, std::size_t at_least,
                    DeadlineSource earliest_deadline) noexcept = 0;

  /// Submits one checked operation, which has no sink, and blocks until it has ended. If it
  /// completes at once, it takes the lane only once.
  virtual void run(OperationRecord& operation) noexcept = 0;
  /// As run(), for an operation that has a sink, and whose caller must not wait for an interrupted
  /// session. False: the driver keeps the operation until the session is resumed or ends; it then
  /// ends in its sink, during a wait() of the sink's owner. Only where event_fd() is -1.
  virtual bool try_run(OperationRecord& operation) noexcept {
    run(operation);
    return true;
  }

  /// True: an operation is a copy or a CPU atomic in the thread that submits it. Outside of a queue
  /// that has told the grant of itself, that thread needs a MappedAccess.
  [[nodiscard]] virtual bool maps_memory() const noexcept { return false; }
  /// True: memory is mapped and the server serves now, so that the caller may carry out checked
  /// transfers by copies of its own. False: the caller calls run() for each.
  [[nodiscard]] virtual bool may_copy() noexcept { return false; }

  /// As wait() with 0; before that it arms event_fd() for the next completion. Does not block where
  /// the lane is broken: its operations come later, and the sink's notifier tells of them.
  virtual void progress_and_arm(CompletionSink& sink,
                                DeadlineSource earliest_deadline) noexcept = 0;
  /// Readable when a completion may be there, after progress_and_arm(). -1: never needed.
  [[nodiscard]] virtual int event_fd() const noexcept { return -1; }
  /// Cancels `operation` if none of its requests was posted. True: it is in its sink, as cancelled.
  virtual bool cancel(OperationRecord& operation) noexcept = 0;
  /// On return no thread will tell the EventNotifier of a sink whose operations have all ended.
  virtual void settle_events() noexcept {}

  /// Whether the lane has operations of the grant, or may have. Moves the operations in flight, and
  /// ends operations of revoked grants that wait for the next lane. Never blocks.
  [[nodiscard]] virtual bool carries(const RevocableGrant& grant) noexcept {
    (void)grant;
    return false;
  }

  /// Moves the lane to the error state, in which its posted requests flush. Does not wait for that.
  virtual void move_to_error() noexcept {}
  /// Ends a broken lane where the thread that found it broken may not wait for the device, and
  /// operations that are past their deadlines and not posted. Blocks.
  virtual void end_broken_lane() noexcept {}
  /// Ends the lane for good (session lost, engine closing): all operations on it end.
  virtual void fail(Reason reason) noexcept = 0;

  /// Breaks the lane, which may go on later. Posted operations end, except reads of one request.
  /// These reads, and operations that are not posted or are submitted meanwhile, wait for go_on(),
  /// within their deadlines.
  virtual void interrupt(Reason reason) noexcept { fail(reason); }
  /// Gives an interrupted driver the lane that it goes on with; null where memory is mapped. False:
  /// the new lane can do less than the one before, or the driver has ended for good.
  virtual bool replace(std::unique_ptr<transport::Lane> lane) noexcept {
    (void)lane;
    return false;
  }
  /// After replace(): the driver goes on, first with the operations that wait.
  virtual void go_on() noexcept {}

  /// Records the fault of an operation that broke the lane; before fail(), the fault of an
  /// operation on a neighbouring lane. The first fault is kept.
  void blame(LaneFault fault) noexcept {
    LaneFault none = LaneFault::kNone;
    fault_.compare_exchange_strong(none, fault, std::memory_order_relaxed);
  }
  [[nodiscard]] LaneFault fault() const noexcept { return fault_.load(std::memory_order_relaxed); }
  /// The lane is broken, or about to be: an operation may have ended with that failure already.
  [[nodiscard]] bool breaking() const noexcept {
    return breaking_.load(std::memory_order_acquire) || broken();
  }
  [[nodiscard]] bool broken() const noexcept { return broken_.load(std::memory_order_acquire); }
  /// The lane is broken, and its posted operations have not ended yet: a thread waits for the
  /// device, or is about to.
  [[nodiscard]] bool ending() const noexcept { return ending_.load(std::memory_order_acquire); }
  /// Where local memory must be registered: the index of the lane's memory domain.
  [[nodiscard]] virtual std::size_t domain_index() const noexcept { return 0; }
  [[nodiscard]] virtual bool needs_keys() const noexcept { return false; }
  /// Requests that the lane has in flight at most, as its device has given it; 0: memory is mapped.
  /// Any thread.
  [[nodiscard]] virtual std::uint32_t depth() const noexcept { return 0; }
  /// The largest transfer of one request.
  [[nodiscard]] virtual std::uint32_t request_bytes_max() const noexcept = 0;
  /// The batches that are faster when neighbours, on both sides, follow each other.
  struct NeighbourGain {
    std::size_t max_operations = 0;  ///< 0: none
    std::uint32_t length_bytes_least = 0;
  };
  [[nodiscard]] virtual NeighbourGain neighbour_gain() const noexcept { return {}; }
  /// Writes of up to this many bytes need no key.
  [[nodiscard]] virtual std::uint32_t inline_bytes_max() const noexcept { return 0; }

 protected:
  std::atomic<bool> breaking_{false};
  std::atomic<bool> broken_{false};
  std::atomic<bool> ending_{false};
  std::atomic<LaneFault> fault_{LaneFault::kNone};
};

}  // namespace remora::detail
